"""What a training needs of the machine it is on: packages that fit together, and enough GPUs."""

from importlib import metadata


class MixedInstallError(RuntimeError):
    """Packages that cannot work together; the message is the command that mends it."""


class NoDeviceError(RuntimeError):
    """Fewer GPUs than the job asks for."""


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


def check_devices(num_gpus: int) -> None:
    """Raises NoDeviceError where this machine has fewer than `num_gpus` GPUs that torch can use."""
    if num_gpus == 0:
        return
    # Late: torch takes seconds, and a job on the CPU needs no answer.
    import torch

    if (num_found := torch.cuda.device_count()) < num_gpus:
        raise NoDeviceError(
            f"resources.gpus_per_worker: the workers of this node ask for {num_gpus} GPUs, and torch finds {num_found} "
            "(valid: 0 trains on the CPU)"
        )


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
