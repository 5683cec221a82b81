"""Real trackers read what real runs write: TensorBoard, MLflow, and Weights & Biases if it is installed."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dlrm.record import TRACKING_FAILED, EvaluationReport, EventReport, RunDirectory
from tests.e2e.launching import ONE_RANK, ended, find_free_port, read_steps, reports_of, start, start_attempt
from tests.patience import wait_until

SHORT = {"eval_every_fraction": 0.5, "yardsticks": "none"}
BLOCK_BYTES = 32_768
BOTH = {"tensorboard": True, "mlflow": {"experiment": "clicks"}}


def read_tensorboard(directory: RunDirectory) -> EventAccumulator:
    """Read every event of a run as TensorBoard does."""
    return EventAccumulator(str(directory.trackers / "tensorboard"), {"scalars": 0}).Reload()


def open_mlflow(directory: RunDirectory) -> tuple[MlflowClient, Run]:
    """Open the only run in the database of a run directory."""
    client = MlflowClient(f"sqlite:///{directory.trackers / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("clicks")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def read_history(client: MlflowClient, run: Run, name: str) -> list[tuple[int, float]]:
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name))


@pytest.mark.slow
def test_tensorboard_and_mlflow_read_what_a_run_reported(tmp_path: Path):
    run = {**SHORT, "trackers": BOTH}
    directory, process = start(tmp_path / "run", run=run, labels={"team": "ads"}, resources=ONE_RANK)
    code, outcome = ended(directory, process)
    assert code == 0
    assert TRACKING_FAILED not in [event.name for event in reports_of(directory, "events") if event.kind == "event"]
    steps = read_steps(directory, 1)
    evaluations = [report for report in reports_of(directory, "metrics") if isinstance(report, EvaluationReport)]

    board = read_tensorboard(directory)
    client, found = open_mlflow(directory)
    for name, reports, field in (
        ("train/loss", steps, "loss"),
        ("train/dense_learning_rate", steps, "dense_learning_rate"),
        ("train/samples_per_second", steps, "samples_per_second"),
        ("evaluation/auc", evaluations, "auc"),
        ("evaluation/normalized_entropy", evaluations, "normalized_entropy"),
    ):
        expected = [(report.step, getattr(report, field)) for report in reports]
        assert read_history(client, found, name) == expected
        scalars = board.Scalars(name)
        assert [(scalar.step, scalar.value) for scalar in scalars] == [(n, np.float32(value)) for n, value in expected]
        assert [scalar.wall_time for scalar in scalars] == pytest.approx([report.time for report in reports])
    measured = [(step.step, step.noise_scale) for step in steps if step.noise_scale is not None]
    assert read_history(client, found, "train/noise_scale") == measured

    assert found.data.metrics["final/auc"] == outcome.metrics["auc"]
    assert board.Scalars("final/auc")[0].value == np.float32(outcome.metrics["auc"])
    assert found.data.params["batch.global_size"] == "2048"
    assert found.data.params["dense_optimizer.learning_rate"] == "0.001"
    assert found.data.tags["labels.team"] == "ads"
    assert found.data.tags["dlrm.job_id"] == "run"
    assert found.data.tags["dlrm.model_path"] == str(directory.model)
    assert (found.info.run_name, found.info.status) == ("dlrm", "FINISHED")


@pytest.mark.slow
def test_curves_of_a_run_that_was_killed_go_on_in_its_next_attempt(tmp_path: Path):
    run = {**SHORT, "trackers": BOTH, "epochs": 8, "checkpoint_every_seconds": 0.1}
    directory, process = start(tmp_path / "run", run=run, resources=ONE_RANK)
    wait_until(lambda: (directory.trackers / "mlflow.db").exists() and len(read_steps(directory, 1)) > 40, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    code, _ = ended(directory, start_attempt(directory, 2), 2)
    assert code == 0
    first, second = read_steps(directory, 1), read_steps(directory, 2)
    assert 1 < second[0].step < second[-1].num_steps

    steps = list(range(1, second[-1].step + 1))
    losses = [report.loss for report in first] + [report.loss for report in second if report.step > first[-1].step]
    client, found = open_mlflow(directory)
    assert read_history(client, found, "train/loss") == list(zip(steps, losses, strict=True))
    scalars = read_tensorboard(directory).Scalars("train/loss")
    assert [(scalar.step, scalar.value) for scalar in scalars] == list(zip(steps, map(np.float32, losses), strict=True))
    assert (found.data.tags["dlrm.attempt"], found.info.status) == ("2", "FINISHED")


@pytest.mark.slow
def test_a_server_that_is_away_costs_a_run_one_warning(tmp_path: Path):
    address = f"http://127.0.0.1:{find_free_port()}"
    run = {**SHORT, "trackers": {"tensorboard": True, "mlflow": {"uri": address}}}
    directory, process = start(tmp_path / "run", run=run, resources=ONE_RANK)
    code, _ = ended(directory, process)
    events = [report for report in reports_of(directory, "events") if isinstance(report, EventReport)]
    (warning,) = [event for event in events if event.name == TRACKING_FAILED]
    assert code == 0
    assert warning.message.startswith("run.trackers.mlflow ")
    # The other tracker does not suffer.
    assert len(read_tensorboard(directory).Scalars("train/loss")) == len(read_steps(directory, 1))


@pytest.mark.slow
def test_a_tensorboard_over_many_runs_serves_their_curves(tmp_path: Path):
    run = {**SHORT, "trackers": {"tensorboard": True}}
    for name in ("first", "second"):
        directory, process = start(tmp_path / name, run=run, resources=ONE_RANK)
        assert ended(directory, process)[0] == 0
    port = find_free_port()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp_path), "--port", str(port)]
    with subprocess.Popen([*command, "--load_fast", "false"], stderr=subprocess.DEVNULL) as board:
        try:
            tags = wait_until(lambda: ask(port, "tags"), board)
            assert sorted(tags) == ["first/trackers/tensorboard", "second/trackers/tensorboard"]
            points = ask(port, "scalars", run="second/trackers/tensorboard", tag="train/loss")
        finally:
            board.terminate()
    expected = [(step.step, step.loss) for step in read_steps(RunDirectory(tmp_path / "second"), 1)]
    assert [step for _, step, _ in points] == [step for step, _ in expected]
    assert [np.float32(loss) for _, _, loss in points] == [np.float32(loss) for _, loss in expected]


def ask(port: int, what: str, **query: str) -> Any:
    """Ask the scalars of a TensorBoard; None before it answers with both runs."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/data/plugin/scalars/{what}", params=query)
    except httpx.TransportError:
        return None
    found = answer.json() if answer.status_code == httpx.codes.OK else None
    return found if query or len(found or ()) == 2 else None


@pytest.mark.slow
def test_weights_and_biases_gets_one_history_without_a_network(tmp_path: Path):
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportMissingImports]

    run = {**SHORT, "trackers": {"wandb": {"project": "clicks"}}}
    directory, process = start(tmp_path / "run", run=run, resources=ONE_RANK)
    assert ended(directory, process)[0] == 0
    (path,) = (directory.trackers / "wandb").glob("offline-run-*/run-*.wandb")
    history: dict[int, Any] = {}
    for data in read_records(path.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            history[items["_step"]] = items
    steps = read_steps(directory, 1)
    assert [history[step.step]["train/loss"] for step in steps] == [step.loss for step in steps]
    assert "evaluation/auc" in history[steps[-1].step]


def read_records(content: bytes) -> list[bytes]:
    """Read the records of a file of W&B: LevelDB's log format, behind a header of seven bytes."""
    assert content[:4] == b":W&B"
    records, position = [b""], 7
    while position + 7 <= len(content):
        if BLOCK_BYTES - position % BLOCK_BYTES < 7:
            position += BLOCK_BYTES - position % BLOCK_BYTES
            continue
        length, kind = int.from_bytes(content[position + 4 : position + 6], "little"), content[position + 6]
        records[-1] += content[position + 7 : position + 7 + length]
        # 1: a whole record; 2, 3 and 4: its first part, another one, its last.
        records += [b""] if kind in (1, 4) else []
        position += 7 + length
    return records[:-1]
