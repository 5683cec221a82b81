"""Daily retraining with real ranks: yesterday's model goes on with today's rows."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlrm
from cli.demo.service_process import run_service
from dlrm.data.encode.vocabulary import CountedVocabulary
from dlrm.exported_model.model import SavedModel
from dlrm.record import EndReason, EventReport, RunDirectory
from service.client import Client
from tests.e2e.launching import ended, reports_of, start, start_attempt

SCHEMA: dict[str, Any] = {
    "label": "click",
    "dense": [{"name": "price"}],
    "categorical": [{"name": "site"}, {"name": "user", "type": "integer"}],
}
SETTINGS: dict[str, Any] = {
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    "batch": {"global_size": 256},
    "dense_optimizer": {"name": "adam", "learning_rate": 0.005, "schedule": {"scaling": "none"}},
    "table_optimizer": {"learning_rate": 0.1},
    "run": {"epochs": 3, "eval_every_fraction": 1.0, "yardsticks": "none"},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}


def write_day(path: Path, sites: Sequence[int], seed: int, num_rows: int = 5000) -> Path:
    """Clicks that depend on the site alone: on odd ones often."""
    random = np.random.default_rng(seed)
    lines = ["click,price,site,user"]
    for _ in range(num_rows):
        site = random.choice(sites)
        click = int(random.random() < (0.8 if site % 2 else 0.1))
        lines.append(f"{click},{random.random():.3f},s{site},{random.integers(0, 50)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def data_of(day: Path | str) -> dict[str, Any]:
    return {"train": [str(day)], "format": "csv", "schema": SCHEMA}


def warm(source: Path | str, **others: Any) -> dict[str, Any]:
    return {**SETTINGS, "run": {**SETTINGS["run"], "warm_start": {"from": str(source), **others}}}


def sites_of(model: SavedModel) -> list[str]:
    vocabulary = model.encoders.vocabularies[0]
    assert isinstance(vocabulary, CountedVocabulary)
    return vocabulary.distinct.to_list()


def scores_of(model: SavedModel, sites: Sequence[int]) -> list[float]:
    rows = {"price": [0.5] * len(sites), "site": [f"s{site}" for site in sites], "user": [7] * len(sites)}
    return model.predict(rows).tolist()


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Day 2 has sites that day 1 had not, and few of those of day 1."""
    path = tmp_path_factory.mktemp("days")
    return [write_day(path / "day_1.csv", range(20), seed=1), write_day(path / "day_2.csv", range(15, 40), seed=2)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, days: list[Path]) -> Iterator[Client]:
    settings = {"DLRM_NUM_CORES": "2", "DLRM_DATA_ROOTS": str(days[0].parent)}
    with run_service(tmp_path_factory.mktemp("state"), settings) as client:
        yield client


@pytest.fixture(scope="module")
def day_1(client: Client) -> Iterator[RunDirectory]:
    """The run of a job on day 1 that has succeeded."""
    job = list(client.follow(client.submit({"data": data_of("day_1.csv"), **SETTINGS}).id))[-1]
    assert job.state == "SUCCEEDED", job.message
    return RunDirectory(Path(job.run_directory))


@pytest.mark.slow
def test_a_source_that_holds_no_model_ends_the_run_as_bad_input(days: list[Path], tmp_path: Path):
    directory, process = start(tmp_path / "run", data=data_of(days[1]), **warm(tmp_path / "gone"))
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert outcome.message.startswith(f"{tmp_path / 'gone'}, run.warm_start.from: ")
    assert "(valid: the directory of a run that has succeeded, or of its model)" in outcome.message


@pytest.mark.slow
def test_packed_rows_must_extend_the_model_and_the_command_that_does_it_is_named(
    days: list[Path], day_1: RunDirectory, tmp_path: Path
):
    document = tmp_path / "job.json"
    document.write_text(json.dumps({"data": data_of(days[1])}))
    prepare = [sys.executable, "-m", "cli", "prepare", str(document), "--output"]
    subprocess.run([*prepare, str(tmp_path / "alone")], check=True, capture_output=True)
    extend = [*prepare, str(tmp_path / "extended"), "--extend", str(day_1.model)]
    assert "20 values: site 20" in subprocess.run(extend, check=True, capture_output=True, text=True).stdout

    packed = {"train": [str(tmp_path / "alone")], "format": "packed"}
    settings = warm(day_1.path)
    # Day 1 left the architecture open, which was decided as for few rows.
    settings["model"] = {**settings["model"], "architecture": "dcn_v2"}
    directory, process = start(tmp_path / "refused", data=packed, **settings)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert "price is encoded with other statistics than in the base that it must extend" in outcome.message
    assert f"`dlrm prepare --extend {day_1.model}`" in outcome.message


@pytest.mark.slow
def test_a_job_goes_on_from_another_with_a_grown_vocabulary(client: Client, day_1: RunDirectory):
    document = {"data": data_of("day_2.csv"), **warm(day_1.path.name, optimizer_state=True)}
    job = list(client.follow(client.submit(document).id))[-1]
    assert job.state == "SUCCEEDED", job.message
    directory = RunDirectory(Path(job.run_directory))
    before, after = dlrm.load_model(day_1.model), dlrm.load_model(directory.model)
    num_known = len(sites_of(before))
    assert sites_of(after)[:num_known] == sites_of(before)
    assert sorted(sites_of(after)[num_known:]) == sorted(f"s{site}" for site in range(20, 40))
    (told,) = [event for event in client.events(job.id) if event.name == "warm_started"]
    assert told.details["tables"] == {"site": {"rows_before": num_known + 2, "rows_after": num_known + 22}}
    assert told.details["optimizer_state"] is True
    assert day_1.path.name in (directory.model / "MODEL_CARD.md").read_text()

    # Three quarters of the sites of day 1 are not in day 2, and still score as they did.
    for odd, even in zip(scores_of(after, range(1, 15, 2)), scores_of(after, range(0, 15, 2)), strict=False):
        assert odd > 0.5 > 0.3 > even
    new_odd, new_even = scores_of(after, range(21, 40, 2)), scores_of(after, range(20, 40, 2))
    assert min(new_odd) > 0.5 > 0.3 > max(new_even)
    assert len(set(scores_of(before, range(20, 40)))) == 1, "to the model of day 1 they are all the same"

    # No test after this one has the run of day 1.
    shutil.rmtree(day_1.path)
    code, outcome = ended(directory, start_attempt(directory, 2), attempt=2)
    assert (code, outcome.reason) == (0, EndReason.COMPLETED), outcome.message
    names = [report.name for report in reports_of(directory, "events", 2) if isinstance(report, EventReport)]
    assert "resumed" in names
    assert "warm_started" not in names
