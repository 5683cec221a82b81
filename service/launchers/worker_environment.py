"""Environment of the processes of an attempt: what they need, and nothing that concerns the service alone."""

import os
from collections.abc import Mapping, Sequence

NAMES = frozenset(
    {
        "CURL_CA_BUNDLE",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LOGNAME",
        "PATH",
        "REQUESTS_CA_BUNDLE",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
        "XDG_CACHE_HOME",
    }
)
"""Variables that workers inherit."""
PREFIXES = (
    # The interpreter, the locale and certificates.
    "PYTHON",
    "LC_",
    "SSL_CERT_",
    # Threads and instructions of numeric libraries.
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "DNNL_",
    "ONEDNN_",
    "TORCH",
    "PYTORCH_",
    "FBGEMM_",
    "POLARS_",
    "ARROW_",
    "MALLOC_",
    # Devices and the network between ranks.
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "GLOO_",
    # Credentials of the stores that the data is in.
    "AWS_",
    "GOOGLE_",
    "CLOUDSDK_",
    "AZURE_",
)
"""Beginnings of the names of variables that workers inherit."""
PROXIES = frozenset({"http_proxy", "https_proxy", "no_proxy", "all_proxy"})
"""Variables that workers inherit in small and in capital letters."""


def select_inherited(environment: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
    """Select the variables of `environment` that workers inherit. more: names of further ones, by the settings."""

    def is_inherited(name: str) -> bool:
        return name in NAMES or name in more or name.startswith(PREFIXES) or name.lower() in PROXIES

    return {name: value for name, value in environment.items() if is_inherited(name)}


def choose_visible_gpus(gpus: Sequence[int], visible_to_service: str | None) -> str:
    """Return CUDA_VISIBLE_DEVICES for an attempt with these GPUs; empty if it has none.

    gpus: numbers among the GPUs that the service sees. visible_to_service: its own CUDA_VISIBLE_DEVICES.
    """
    if visible_to_service is None:
        return ",".join(str(number) for number in gpus)
    devices = [device.strip() for device in visible_to_service.split(",")]
    return ",".join(devices[number] for number in gpus if number < len(devices))


def make_worker_environment(marks: Mapping[str, str], gpus: Sequence[int], more: Sequence[str]) -> dict[str, str]:
    """Make the environment of an attempt: what it inherits, its marks, and the GPUs that it may see."""
    visible = choose_visible_gpus(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return {**select_inherited(os.environ, more), **marks, "CUDA_VISIBLE_DEVICES": visible}
