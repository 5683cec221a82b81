"""Jobs that follow a growing set of files: real attempts, files that come meanwhile, stops, and other ranks."""

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlrm.config import JobConfig, resolve
from dlrm.record import EvaluationReport, EventReport, ProgressReport, RunDirectory, find_newest_checkpoint
from tests.e2e.launching import TINY, ended, reports_of, start, start_attempt
from tests.patience import wait_until

SIZES = [2500, 3300, 700, 2900, 2100]
SCHEMA = {"label": "y", "dense": [{"name": "x"}], "categorical": [{"name": "a"}, {"name": "b", "type": "string"}]}
IDLE: dict[str, Any] = {"settle_seconds": 0.0, "look_every_seconds": 0.1, "idle_minutes": 1e-5}
ENDLESS: dict[str, Any] = {**IDLE, "idle_minutes": None}


@pytest.fixture
def days(tmp_path: Path) -> list[Path]:
    (tmp_path / "days").mkdir()
    files: list[Path] = []
    for day, size in enumerate(SIZES):
        random = np.random.default_rng(day)
        ids, x = random.integers(0, 300, size) + 60 * day, random.normal(size=size) + 0.1 * day
        labels = random.random(size) < 1 / (1 + np.exp(-np.sin(ids) - x))
        lines = [f"{int(y)},{v:.5f},{i},t{i % 7}" for y, v, i in zip(labels, x, ids, strict=True)]
        files.append(tmp_path / "days" / f"day_{day}.csv")
        files[-1].write_text("\n".join(["y,x,a,b", *lines]) + "\n")
    return files


def make_changes(
    directory: Path, follow: dict[str, Any] | None, *, workers: int = 1, **sections: Any
) -> dict[str, Any]:
    data = {"train": [str(directory / "day_*.csv")], "format": "csv", "order": "time", "window_rows": 1024}
    vocabulary = {"dynamic": {"max_rows": 200}, "columns": {"b": {"hash_size": 16}}}
    return {
        "data": {**data, "schema": SCHEMA, "vocabulary": vocabulary, "follow": follow, **sections.pop("data", {})},
        "batch": {"global_size": 600},
        "dense_optimizer": {
            "name": "adam",
            "learning_rate": 0.001,
            "schedule": {"decay": "constant", "warmup_fraction": 0.0},
        },
        "run": sections.pop("run", {}),
        "resources": {"workers_per_node": workers, "memory": "2GB"},
    }


def bring(file: Path, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    shutil.copy(file, directory / ".coming")
    (directory / ".coming").rename(directory / file.name)


def count_steps(run: RunDirectory) -> int:
    checkpoint = find_newest_checkpoint(run.checkpoints)
    return 0 if checkpoint is None else checkpoint.step


def read_weights(run: RunDirectory) -> bytes:
    return (run.model / "model.safetensors").read_bytes()


def measured(run: RunDirectory, attempts: int) -> list[tuple[int, int, float]]:
    found = [report for number in range(1, attempts + 1) for report in reports_of(run, "metrics", number)]
    return [(r.step, r.num_rows, r.log_loss) for r in found if isinstance(r, EvaluationReport)]


def test_files_that_come_one_by_one_leave_the_model_of_all_files_at_once(tmp_path: Path, days: list[Path]):
    for file in days:
        bring(file, tmp_path / "all")
    whole, process = start(tmp_path / "whole", **make_changes(tmp_path / "all", IDLE))
    code, outcome = ended(whole, process)
    assert (code, outcome.state) == (0, "succeeded"), outcome.message
    assert outcome.metrics["num_samples"] == sum(SIZES)
    # Its figures are of the newest rows before it was trained on them, and of an earlier step than its weights.
    assert outcome.metrics["model_step"] == outcome.step
    card = (whole.model / "MODEL_CARD.md").read_text()
    assert "newest rows, before it was trained on them" in card
    assert "best on these rows" not in card

    live = tmp_path / "live"
    bring(days[0], live)
    run, process = start(tmp_path / "run", **make_changes(live, ENDLESS))
    # 2,500 rows have two windows: three whole batches.
    wait_until(lambda: count_steps(run) == 3, process)
    wait_until((run.model / "config.json").exists, process)
    bring(days[1], live)
    wait_until(lambda: count_steps(run) == 5_120 // 600, process)
    wait_until(lambda: is_waiting(run), process)
    process.send_signal(signal.SIGTERM)
    code, outcome = ended(run, process)
    assert (code, outcome.state) == (75, "stopped")

    for file in days[2:]:
        bring(file, live)
    rewrite(run, make_changes(live, IDLE))
    code, outcome = ended(run, start_attempt(run, 2), 2)
    assert (code, outcome.state) == (0, "succeeded"), outcome.message
    assert read_weights(run) == read_weights(whole)
    assert measured(run, 2) == measured(whole, 1)
    # The first file is not measured, and neither are the rows behind the last window. The third fills no window alone.
    assert [num_rows for _, num_rows, _ in measured(run, 2)] == [3072, 1024, 3072, 2048]
    events = [report for report in reports_of(whole, "events") if isinstance(report, EventReport)]
    new_rows = [event for event in events if event.name == "new_rows"]
    # The last round trains on a few steps: those of the first one are what a step takes.
    assert [event.name for event in events].count("step_parts") == 1
    assert [event.details["first_row"] for event in new_rows] == [2048, 5120, 6144, 9216]
    assert 0.2 < new_rows[0].details["label_rate"] < 0.9
    # The first attempt has had two rounds: the second one tells of its rows and its checkpoint alone.
    names = [report.name for report in reports_of(run, "events") if isinstance(report, EventReport)]
    second = names.index("files_read", names.index("checkpoint_saved"))
    assert names[second:] == ["files_read", "data_loaded", "new_rows", "checkpoint_saved"]
    assert {"plan", "step_parts"} < {*names[:second]}
    assert "resumed" in [r.name for r in reports_of(run, "events", 2) if isinstance(r, EventReport)]


def is_waiting(run: RunDirectory) -> bool:
    reports = [report for report in reports_of(run, "events") if isinstance(report, ProgressReport)]
    return bool(reports) and reports[-1].message.startswith("waiting for further files: 2 files read")


def rewrite(run: RunDirectory, changes: dict[str, Any]) -> None:
    run.spec.write_text(resolve(JobConfig.model_validate({**TINY, **changes})).model_dump_json())


@pytest.mark.slow
def test_a_followed_run_is_one_run_over_the_same_files_also_on_other_ranks(tmp_path: Path, days: list[Path]):
    """With a model to start from, the scales of dense features and the first bias are the same too."""
    first, process = start(tmp_path / "first", **make_changes(tmp_path / "days", None, data={"split": "tail"}))
    assert ended(first, process)[0] == 0
    run = {"warm_start": {"from": str(first.path)}}
    ordinary = make_changes(
        tmp_path / "days", None, data={"eval": [str(days[0])], "train": [str(f) for f in days[1:]]}, run=run
    )
    plain, process = start(tmp_path / "plain", **ordinary)
    assert ended(plain, process)[0] == 0

    live = tmp_path / "live"
    bring(days[1], live)
    followed, process = start(tmp_path / "followed", **make_changes(live, ENDLESS, run=run))
    wait_until(lambda: count_steps(followed) == 5, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for file in days[2:]:
        bring(file, live)
    shutil.copytree(followed.path, tmp_path / "two")
    two = RunDirectory(tmp_path / "two")
    for directory, workers in ((followed, 1), (two, 2)):
        rewrite(directory, make_changes(live, IDLE, run=run, workers=workers))
        assert ended(directory, start_attempt(directory, 2), 2)[0] == 0
    assert read_weights(followed) == read_weights(plain)
    assert abs(measured(two, 2)[-1][2] - measured(followed, 2)[-1][2]) < 1e-4
