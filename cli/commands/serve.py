"""Command `dlrm serve`: runs the service in this process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from cli.commands.options import grouped
from cli.local.errors import BadInputError, CommandError
from service.client.connection import get_ready_file_path, save_admin_key


@dataclass(frozen=True)
class ServeSettings:
    """Settings of the service that are options; None if an environment variable or the default decides."""

    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on; 0 picks a free one, which later starts keep.", show_default="8080"),
    ] = None
    data_root: Annotated[
        list[str] | None,
        typer.Option(
            help="Directory, or s3://bucket/key, that jobs may read data from; may be repeated.",
            show_default="current directory",
        ),
    ] = None
    state_directory: Annotated[
        Path | None, typer.Option(help="Directory of the database, the runs and the admin key.", show_default=".dlrm")
    ] = None

    def list_given(self) -> dict[str, Any]:
        """List the options that were given, as arguments of the settings of the service."""
        given = {**vars(self), "data_roots": self.data_root}
        del given["data_root"]
        return {name: value for name, value in given.items() if value is not None}


@grouped
def serve(
    *,
    options: ServeSettings,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            help="File to write url, admin_key and signin_link to, as JSON.",
            show_default="ready.json in the state directory",
        ),
    ] = None,
) -> None:
    """Run the service, with its REST API and dashboard, until Ctrl-C; jobs keep running without it.

    The first start prints an admin key. Every start prints a link that signs a
    browser in. Other `dlrm` commands find the service and the key by themselves
    if you run them in the same directory or below it, or if DLRM_STATE_DIRECTORY
    names the state directory.

        dlrm serve --data-root /data/criteo

        dlrm serve --port 0 --state-directory ~/dlrm-try

    Each option can also be set by an environment variable, such as DLRM_PORT;
    docs/settings.md lists these and further ones.
    """
    # Imported here so that other commands, such as `dlrm jobs`, do not load the server's libraries.
    from dlrm.record.state_directory import StateDirectoryError
    from service.access.data_roots import AccessTableError
    from service.database.url import DatabaseUnusableError, DatabaseUrlError
    from service.launchers.kubernetes.options import KubernetesError
    from service.serve import AddressError
    from service.serve import serve as run_service
    from service.settings import Settings

    try:
        settings = Settings(**options.list_given())
    except ValidationError as error:
        raise BadInputError(*format_errors(error)) from None
    save_admin_key(settings.state_directory)
    try:
        run_service(settings, ready_file or get_ready_file_path(settings.state_directory))
    except (DatabaseUrlError, KubernetesError, AccessTableError) as error:
        raise BadInputError(str(error)) from None
    except (StateDirectoryError, AddressError, DatabaseUnusableError) as error:
        raise CommandError(str(error)) from None


def format_errors(error: ValidationError) -> list[str]:
    """Format validation errors, one line per setting, which is named by its environment variable."""
    errors = error.errors(include_url=False)
    # Leave out defaults that could not be computed because another setting is invalid.
    own = [details for details in errors if details["type"] != "default_factory_not_called"]
    return [f"DLRM_{str(details['loc'][0]).upper()}: {details['msg']}, got {details['input']!r}" for details in own]
