"""Software and hardware on which trials run, told without torch."""

import platform
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cli.experiments.sweep.results import Environment
from hostinfo.limits import NVIDIA_SMI_SECONDS, count_cores, count_gpus, get_memory_bytes

DISTRIBUTIONS = {"dlrm": "dlrm-service", "torch": "torch", "numpy": "numpy"}
"""Distributions whose versions are told, by the name that they are told with."""


@cache
def describe_environment() -> Environment:
    """Describe this machine, within the limits of this process."""
    versions = {"python": platform.python_version()}
    for name, distribution in DISTRIBUTIONS.items():
        try:
            versions[name] = version(distribution)
        except PackageNotFoundError:
            continue
    return Environment(
        versions=versions,
        processor=_read_processor_name(),
        num_cores=count_cores(),
        memory_bytes=get_memory_bytes(),
        gpu=_read_gpu_name() if count_gpus() else None,
    )


def _read_processor_name() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _read_gpu_name() -> str | None:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return ", ".join(sorted(set(answer.splitlines()))) or None
