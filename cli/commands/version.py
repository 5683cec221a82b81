"""Option `--version` of `dlrm`."""

from importlib.metadata import PackageNotFoundError, version

import typer

from cli.local.errors import CommandError


def print_version(is_requested: bool) -> None:
    """Print one line with the version of this program and that of torch, and end the command."""
    if not is_requested:
        return
    own, torch = _find_version("dlrm-service"), _find_version("torch")
    if own is None:
        raise CommandError("dlrm is not installed as a package here, so its version is unknown: pip install -e .")
    typer.echo(f"dlrm {own}, {f'torch {torch}' if torch else 'without torch'}")
    raise typer.Exit


def _find_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
