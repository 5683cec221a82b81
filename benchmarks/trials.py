"""Trials of a comparison, each stored as a line of JSON when it ends, so that an interrupted run can continue."""

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import torch

import dlrm
import sharding
from benchmarks.cells import Cell
from benchmarks.roofline import Rates
from benchmarks.worlds import Stretch
from dlrm.native import has_native_operators
from sharding.native import load_library

SOURCES = (".py", ".cpp", ".h", ".so")
STEPS = [
    Path(__file__).with_name(name)
    for name in ("cells.py", "our_steps.py", "torchrec_step.py", "training.py", "worlds.py")
]
"""Source files that make both kinds of step."""


@dataclass(frozen=True)
class Trial:
    """One round of one cell: a stretch of steps of each engine, one right after the other."""

    cell: Cell
    number: int
    """Number of the round, counted from 0."""
    stretches: dict[str, Stretch] = field(default_factory=dict[str, Stretch])
    """Measured stretches, by engine; empty if the round failed."""
    rates: Rates | None = None
    """Rates of the machine, measured right before the stretches; None if nothing ran."""
    failure: str = ""
    """Reason for a round without stretches: what did not fit or did not run; else empty."""


class Trials:
    """Trials made on this machine with these versions and this code; lines of other settings stay in the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.setting = describe_setting()
        lines = path.read_text().splitlines() if path.exists() else []
        found = [line for line in map(_parse_line, lines) if line and line["setting"] == self.setting]
        self._trials = [_parse_trial(line["trial"]) for line in found]

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials)

    def get_trials(self, cell: Cell) -> list[Trial]:
        return [trial for trial in self._trials if trial.cell == cell]

    def list_cells(self) -> list[Cell]:
        """List the cells with trials, in the order of their first trials."""
        return list(dict.fromkeys(trial.cell for trial in self._trials))

    def add(self, trial: Trial) -> None:
        self._trials.append(trial)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            # A line that was cut short has no line break at its end.
            file.write("\n" if self._is_cut_short() else "")
            file.write(json.dumps({"setting": self.setting, "trial": asdict(trial)}) + "\n")

    def _is_cut_short(self) -> bool:
        text = self._path.read_bytes()
        return bool(text) and not text.endswith(b"\n")


def describe_setting() -> dict[str, Any]:
    """Describe the hardware, the versions, and the measured code by a fingerprint."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    flags = Path("/proc/cpuinfo").read_text().split()
    return {
        "cpu": model[0].partition(":")[2].strip() if model else platform.processor(),
        "cpu_features": [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        **{name: version(name) for name in ("torch", "torchrec", _find_fbgemm())},
        "operators": "own" if load_library("tables") and has_native_operators() else "those of libraries",
        "code": _compute_fingerprint(),
    }


def _find_fbgemm() -> str:
    """Return the name of FBGEMM's build that belongs to this build of torch."""
    return "fbgemm-gpu-cpu" if torch.version.cuda is None else "fbgemm-gpu"


def _compute_fingerprint() -> str:
    digest = hashlib.sha256()
    for path in (*_list_sources(dlrm), *_list_sources(sharding), *STEPS):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _list_sources(package: ModuleType) -> list[Path]:
    (root,) = package.__path__
    return sorted(path for path in Path(root).rglob("*") if path.suffix in SOURCES)


def _parse_line(line: str) -> dict[str, Any]:
    """Parse a line; return an empty dict where the line was cut short."""
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return {}


def _parse_trial(fields: dict[str, Any]) -> Trial:
    stretches = {engine: Stretch(**stretch) for engine, stretch in fields["stretches"].items()}
    rates = None if fields["rates"] is None else Rates(**fields["rates"])
    return Trial(Cell(**fields["cell"]), fields["number"], stretches, rates, fields["failure"])
