"""The packages of trackers: they are optional."""

from importlib.util import find_spec

from dlrm.config import ConfigError, FieldError, TrackersConfig


def check_packages(trackers: TrackersConfig) -> None:
    """Raise ConfigError if a tracker that a job uses is not installed here; each package has its tracker's name."""
    errors = [
        FieldError(
            f"run.trackers.{name}",
            f"the package {name} is not installed where the job trains",
            f"false, or after: pip install 'dlrm-service[{name}]'",
        )
        for name in trackers.names
        if not _is_installed(name)
    ]
    if errors:
        raise ConfigError(errors)


def _is_installed(name: str) -> bool:
    """Whether a package is installed: a directory of its name, as trackers leave one, is no package."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None
