"""A run that is killed again and again ends as if it had not been. DLRM_KILLS_SEED draws other moments."""

import itertools
import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.record import PreparedData, RunDirectory
from tests.dlrm.train.test_run import run_attempt
from tests.e2e.killing import KINDS, curve, finish, kill_once
from tests.e2e.launching import TINY, ended, start
from tests.e2e.raw_rows import data_of, write_rows
from tests.rank_pool.pool import RankPools

SEED = int(os.environ.get("DLRM_KILLS_SEED", "1"))
SHORT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 60_000, "num_ids": 500}, "eval_fraction": 0.4},
    "run": {"epochs": 6, "eval_every_fraction": 0.1, "checkpoint_every_seconds": 0.4, "yardsticks": "none"},
}
SHORTEST: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 30_000, "num_ids": 500}, "eval_fraction": 0.2},
    "run": {**SHORT["run"], "epochs": 3, "eval_every_fraction": 0.25},
}
LONG: dict[str, Any] = {**SHORT, "run": {"epochs": 40, "eval_every_fraction": 0.02, "checkpoint_every_seconds": 1.0}}
RAW: dict[str, Any] = {
    "batch": {"global_size": 512},
    "run": {"epochs": 20, "eval_every_fraction": 0.1, "checkpoint_every_seconds": 0.4, "yardsticks": "none"},
}
NUM_RUNS = 6
WITHIN = ("start-up", "training", "checkpoint", "evaluation")
NUM_KILLS_WITHIN, NUM_KILLS_OF_EXPORT = 8, 2


def undisturbed(path: Path, job: dict[str, Any]) -> RunDirectory:
    directory, process = start(path, **job)
    code, outcome = ended(directory, process)
    assert code == 0, outcome.message
    return directory


def run_with_kills(path: Path, job: dict[str, Any], kills: Sequence[tuple[str, str]], seed: str) -> RunDirectory:
    """A run of `job`, killed as `kills` say, kind and moment, and then let go to its end."""
    chance = random.Random(seed)
    directory, process = start(path, **job)
    process.kill()
    process.wait()
    numbers = itertools.count(2)
    for kind, moment in kills:
        # Where an attempt has ended a moment before, the next one writes the model again.
        while not kill_once(directory, next(numbers), kind, moment, chance):
            pass
    finish(directory, next(numbers))
    return directory


def assert_same(killed: RunDirectory, alone: RunDirectory) -> None:
    assert curve(killed) == curve(alone)
    weights = "model.safetensors"
    assert (killed.model / weights).read_bytes() == (alone.model / weights).read_bytes()


@pytest.mark.parametrize(
    ("document", "num_ranks", "kills"),
    [
        pytest.param(SHORTEST, 1, [("everything", "checkpoint")], id="once"),
        pytest.param(
            SHORT,
            2,
            [("launch", "training"), ("rank", "checkpoint"), ("stop", "evaluation"), ("everything", "export")],
            id="again and again",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_that_was_killed_and_stopped_ends_as_if_it_had_not_been(
    rank_pools: RankPools, tmp_path: Path, document: dict[str, Any], num_ranks: int, kills: list[tuple[str, str]]
):
    """The run that it is compared with has ranks of the pool, which need not start."""
    job = {**document, "resources": {"workers_per_node": num_ranks, "threads_per_worker": 1}}
    alone = RunDirectory(tmp_path / "alone")
    resolved = resolve(JobConfig.model_validate({**TINY, **job}))
    assert rank_pools.of(num_ranks).run(run_attempt, alone.path, 1, resolved, None)[0].state == "succeeded"
    assert_same(run_with_kills(tmp_path / "killed", job, kills, f"{SEED}"), alone)


@pytest.mark.slow
def test_a_run_killed_while_it_prepared_and_trained_ends_as_if_undisturbed(tmp_path: Path):
    job = {**RAW, "data": data_of(write_rows(tmp_path / "rows.csv", 20_000))}
    alone = undisturbed(tmp_path / "alone", job)
    kills = [("launch", "preparation"), ("stop", "preparation"), ("rank", "training"), ("everything", "checkpoint")]
    killed = run_with_kills(tmp_path / "killed", job, kills, f"raw-{SEED}")
    assert_same(killed, alone)
    prepared = [PreparedData.read(directory.data) for directory in (killed, alone)]
    assert len({data and data.checksum for data in prepared}) == 1


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return undisturbed(tmp_path_factory.mktemp("undisturbed") / "alone", LONG)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(NUM_RUNS))
def test_ten_kills_at_random_moments_change_nothing(alone: RunDirectory, tmp_path: Path, number: int):
    seed = f"{SEED}-{number}"
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    num_kills = NUM_KILLS_WITHIN + NUM_KILLS_OF_EXPORT
    kinds = [KINDS[(number + kill) % len(KINDS)] for kill in range(num_kills)]
    chance.shuffle(kinds)
    moments = [*chance.choices(WITHIN, k=NUM_KILLS_WITHIN), *["export"] * NUM_KILLS_OF_EXPORT]
    assert len(Counter(kinds)) == len(KINDS)
    assert_same(run_with_kills(tmp_path / f"run-{number}", LONG, list(zip(kinds, moments, strict=True)), seed), alone)
