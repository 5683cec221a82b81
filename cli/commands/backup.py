"""Commands `dlrm backup` and `dlrm restore`: the database of the service, saved and put back."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import ValidationError

from cli.commands.serve import format_errors
from cli.local.console import say
from cli.local.errors import BadInputError, CommandError
from dlrm.config import format_count
from hostinfo.sizes import format_size

if TYPE_CHECKING:
    from service.settings import Settings

Result = TypeVar("Result")
StateDirectory = Annotated[
    Path | None, typer.Option(help="State directory of the service.", show_default="DLRM_STATE_DIRECTORY, else .dlrm")
]


def backup(
    target: Annotated[Path, typer.Argument(metavar="TO", help="New directory for the backup.", show_default=False)],
    state_directory: StateDirectory = None,
) -> None:
    """Save the database of the service, while it runs: jobs, events, curves, keys and quotas.

    It runs where the service runs, with the same settings (DLRM_DATABASE_URL).
    On PostgreSQL it needs pg_dump of the server's version. Run directories, with
    checkpoints and models, are no part of it: copy them after the database.

        dlrm backup /backups/2026-01-31
    """
    from service.backup.service import back_up

    manifest = _run(state_directory, lambda settings: back_up(settings, target))
    say(f"{manifest.num_jobs} jobs, {format_size(manifest.num_bytes)}, revision {manifest.revision}")
    say(f"not saved, as no part of the database: the run directories in {manifest.runs_directory}")
    typer.echo(str(target))


def restore(
    source: Annotated[Path, typer.Argument(metavar="FROM", help="Directory of the backup.", show_default=False)],
    state_directory: StateDirectory = None,
    force: Annotated[
        bool, typer.Option("--force", help="Move a database that is there aside; it is kept under another name.")
    ] = False,
    is_copy: Annotated[
        bool, typer.Option("--copy", help="Pause its schedules and stop its webhooks: the original service goes on.")
    ] = False,
) -> None:
    """Put the database of a backup back; the service must be stopped, and is started afterwards.

    Damaged backups, and ones of later versions, are refused before anything is
    changed. At its start the service finds the jobs of the backup that still run.
    Processes of later jobs are killed; see docs/operations.md.

        dlrm restore /backups/2026-01-31

        dlrm restore /backups/2026-01-31 --force

        dlrm restore /backups/2026-01-31 --copy --state-directory ~/dlrm-copy
    """
    from service.backup.service import restore as restore_backup

    restored = _run(state_directory, lambda settings: restore_backup(settings, source, force=force, is_copy=is_copy))
    manifest = restored.manifest
    if restored.aside is not None:
        say(f"the database that was there is kept as {restored.aside}")
    if restored.num_schedules or restored.num_webhooks:
        say(
            f"a service that starts on it submits the jobs of {format_count(restored.num_schedules, 'schedule')} and "
            f"sends {format_count(restored.num_webhooks, 'webhook')}: if the original goes on, restore with --copy"
        )
    say(f"restored: {manifest.num_jobs} jobs, as they were at {manifest.created_at:%Y-%m-%d %H:%M:%S} UTC")


def _run(state_directory: Path | None, work: "Callable[[Settings], Result]") -> Result:
    """Do work with the settings of the service. Raises CommandError for each fault."""
    from dlrm.record.state_directory import StateDirectoryError
    from service.backup.manifest import BackupError
    from service.database.url import DatabaseUnusableError, DatabaseUrlError
    from service.settings import Settings

    try:
        return work(Settings() if state_directory is None else Settings(state_directory=state_directory))
    except ValidationError as error:
        raise BadInputError(*format_errors(error)) from None
    except DatabaseUrlError as error:
        raise BadInputError(str(error)) from None
    except (BackupError, StateDirectoryError, DatabaseUnusableError) as error:
        raise CommandError(str(error)) from None
