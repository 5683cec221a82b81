"""Runs of a job in this process, on one rank, one after another; the result of each is kept in a file."""

import json
import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import find_free_port
from dlrm.config import ResolvedJob, parse_job, resolve
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from dlrm.record import PreparedData, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.train.context import RunContext
from dlrm.train.run import run
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks, join_process_groups


class Results:
    """Results in a file with a line of JSON per finished run: the values of `keys`, which identify it, and its AUC."""

    def __init__(self, path: Path, *keys: str) -> None:
        self._path, self._keys = path, keys
        lines = path.read_text().splitlines() if path.exists() else []
        self._aucs = {tuple(found[key] for key in keys): found["auc"] for found in map(json.loads, lines)}

    def __contains__(self, run: tuple[Any, ...]) -> bool:
        return run in self._aucs

    def __getitem__(self, run: tuple[Any, ...]) -> float:
        return self._aucs[run]

    def add(self, run: tuple[Any, ...], auc: float) -> None:
        self._aucs[run] = auc
        with self._path.open("a") as file:
            file.write(json.dumps(dict(zip(self._keys, run, strict=True)) | {"auc": auc}) + "\n")


@contextmanager
def join_alone() -> Iterator[Ranks]:
    """Join a process group that has only this process."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": find_free_port(), "RANK": "0", "WORLD_SIZE": "1"}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with join_process_groups() as ranks:
        yield ranks


def read_job(path: Path, changes: dict[str, Any]) -> ResolvedJob:
    """Resolve the job of a TOML file for one rank, with the sections of `changes` merged into its own."""
    document = tomllib.loads(path.read_text())
    for section, fields in {**changes, "resources": {"workers_per_node": 1}}.items():
        document[section] = {**document.get(section, {}), **fields}
    return resolve(parse_job(document))


def prepare_rows(path: Path, scratch: Path) -> Path:
    """Prepare the rows of the job of a TOML file; return the packed directory, which is under `scratch`."""

    def ignore(_: ProgressEvent | NoteEvent) -> None:
        pass

    config = read_job(path, {}).job.data
    return find_or_prepare(config, None, scratch, base_directory=path.resolve().parent, num_threads=2, on_event=ignore)


def train_to_auc(resolved: ResolvedJob, data: Path | None, scratch: Path, ranks: Ranks) -> float:
    """Train once and return the AUC. Raises DivergedError if the run diverges.

    data: directory of packed rows; None for a synthetic log.
    """
    directory = RunDirectory(Path(tempfile.mkdtemp(dir=scratch)))
    attempt = directory.attempt(1)
    attempt.create()
    if data is not None:
        PreparedData(directory=str(data), checksum="").write(directory.data)
    outcome = run(RunContext(resolved, directory, attempt.profile, ranks, Reporter(attempt, 0), StopRequest()))
    auc = None if outcome is None else outcome.metrics["auc"]
    assert auc is not None, "the run goes to its end, and the evaluation rows have both labels"
    return auc
