"""What a training needs of the machine it is on: packages that fit together, and enough GPUs."""

from importlib import metadata

MEND_CPU = "pip install --no-deps -r requirements/cpu.txt"


class MixedInstallError(RuntimeError):
    """Packages that cannot work together; the message is the command that mends it."""


class NoDeviceError(RuntimeError):
    """Fewer GPUs than the job asks for."""


def check_environment() -> None:
    """Raises MixedInstallError where a trainer's package is missing, or two of them do not go together.

    Both builds of FBGEMM lie in the same directory: the one that comes second overwrites the other, and neither works.
    """
    torch_version = _version("torch")
    cpu_build, cuda_build = _version("fbgemm-gpu-cpu"), _version("fbgemm-gpu")
    needed = {"torch": torch_version, "fbgemm-gpu or fbgemm-gpu-cpu": cpu_build or cuda_build}
    if missing := [name for name, version in needed.items() if version is None]:
        raise MixedInstallError(f"the trainer needs {', '.join(missing)}; mend it: {MEND_CPU} (cuda.txt for GPUs)")
    if cpu_build and cuda_build:
        raise MixedInstallError(
            f"fbgemm-gpu and fbgemm-gpu-cpu are both installed and overwrite each other{_told_of_torchrec()}; "
            f"mend it: pip uninstall -y fbgemm-gpu fbgemm-gpu-cpu && {MEND_CPU}"
        )
    if cuda_build and torch_version and torch_version.endswith("+cpu"):
        raise MixedInstallError(
            f"fbgemm-gpu is built for CUDA and torch {torch_version} is not{_told_of_torchrec()}; "
            f"mend it: pip uninstall -y fbgemm-gpu && {MEND_CPU}"
        )


def check_devices(num_gpus: int) -> None:
    """Raises NoDeviceError where this machine has fewer than `num_gpus` GPUs that torch can use."""
    if num_gpus == 0:
        return
    # Late: torch takes seconds, and a job on the CPU needs no answer.
    import torch

    if (num_found := torch.cuda.device_count()) < num_gpus:
        raise NoDeviceError(
            f"resources.gpus_per_worker: the workers of this node ask for {num_gpus} GPU(s), and torch finds "
            f"{num_found} (valid: 0 trains on the CPU)"
        )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _told_of_torchrec() -> str:
    """What a plain `pip install torchrec` does, where it may have been that."""
    if _version("torchrec") is None:
        return ""
    return " (torchrec asks for fbgemm-gpu: install it with --no-deps, as in requirements/dev.txt)"
