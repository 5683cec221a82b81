"""Recognises an installation in which torch, torchrec and fbgemm-gpu do not fit together."""

from importlib import metadata


class MixedInstallError(RuntimeError):
    """Packages that cannot work together; the message is the command that mends it."""


def check_environment() -> None:
    """Raises MixedInstallError where a trainer's package is missing or two of them exclude each other.

    torchrec asks for the CUDA build `fbgemm-gpu` unconditionally: a plain `pip install torchrec` puts it over
    `fbgemm-gpu-cpu`, in the same directory, and from then on neither works.
    """
    missing = [name for name in ("torch", "torchrec") if not _is_installed(name)]
    builds = [name for name in ("fbgemm-gpu", "fbgemm-gpu-cpu") if _is_installed(name)]
    if missing or not builds:
        absent = missing + ([] if builds else ["fbgemm-gpu-cpu"])
        raise MixedInstallError(f"the trainer needs {', '.join(absent)}; install it: make setup")
    if len(builds) == 2:
        raise MixedInstallError(
            "fbgemm-gpu and fbgemm-gpu-cpu are both installed and overwrite each other; mend it: "
            "pip uninstall -y fbgemm-gpu fbgemm-gpu-cpu && pip install --no-deps fbgemm-gpu-cpu==1.8.0"
        )


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
