"""Requirements of training on its machine: packages that fit together, and enough GPUs."""

from importlib import metadata

REPAIR_CPU = "pip install --no-deps -r requirements/cpu.txt"
HINT_ABOUT_TORCHREC = " (torchrec requires fbgemm-gpu: install torchrec with --no-deps, as in requirements/cpu.txt)"


class MixedInstallError(RuntimeError):
    """Error of packages that cannot work together; the message contains the command that repairs the installation."""


class NoDeviceError(RuntimeError):
    """Error of a machine with fewer GPUs than the job asks for."""


def check_environment() -> None:
    """Raise MixedInstallError if a package of the trainer is missing, or if two of them do not fit together.

    Both builds of FBGEMM install to the same directory: the second one overwrites the first, and neither works. A plain
    `pip install torchrec` installs the CUDA build over that for CPUs.
    """
    torch_version = _find_version("torch")
    cpu_build, cuda_build = _find_version("fbgemm-gpu-cpu"), _find_version("fbgemm-gpu")
    needed = {
        "torch": torch_version,
        "torchrec": _find_version("torchrec"),
        "fbgemm-gpu or fbgemm-gpu-cpu": cpu_build or cuda_build,
    }
    if missing := [name for name, version in needed.items() if version is None]:
        raise MixedInstallError(f"the trainer needs {', '.join(missing)}; to repair: {REPAIR_CPU} (cuda.txt for GPUs)")
    if cpu_build and cuda_build:
        raise MixedInstallError(
            f"fbgemm-gpu and fbgemm-gpu-cpu are both installed and overwrite each other{HINT_ABOUT_TORCHREC}; "
            f"to repair: pip uninstall -y fbgemm-gpu fbgemm-gpu-cpu && {REPAIR_CPU}"
        )
    if cuda_build and torch_version and torch_version.endswith("+cpu"):
        raise MixedInstallError(
            f"fbgemm-gpu is built for CUDA, but torch {torch_version} is not{HINT_ABOUT_TORCHREC}; "
            f"to repair: pip uninstall -y fbgemm-gpu && {REPAIR_CPU}"
        )


def check_devices(num_gpus: int) -> None:
    """Raise NoDeviceError if this machine has fewer than `num_gpus` GPUs that torch can use."""
    if num_gpus == 0:
        return
    # Imported late: importing torch takes seconds, and a job on the CPU does not need it.
    import torch

    if (num_found := torch.cuda.device_count()) < num_gpus:
        build = f"torch {torch.__version__}" if torch.version.cuda else f"torch {torch.__version__}, a build for CPUs,"
        fix = "" if torch.version.cuda else "; requirements/cuda.txt installs the build for GPUs"
        raise NoDeviceError(
            f"resources.gpus_per_worker: the workers of this node ask for {num_gpus} GPU(s), but {build} finds "
            f"{num_found} (valid: 0, to train on the CPU{fix})"
        )


def _find_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
