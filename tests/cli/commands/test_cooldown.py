"""`dlrm cooldown`: the model of a shorter run from a checkpoint of a run at a constant rate."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dlrm.config import JobConfig, resolve
from dlrm.record import DATA_LOADED, EventReport, RunDirectory, find_newest_checkpoint, list_checkpoints
from tests.cli.conftest import Command, run
from tests.e2e.launching import reports_of
from tests.service.api import Api, make_document
from tests.service.databases import on_sqlite
from tests.service.jobs.test_warm_start import write_checkpoint, write_model
from tests.service.raw import get_key
from tests.sharding.read_checkpoint import read_whole

BATCH = 1024
DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 50}},
    "model": {"architecture": "dlrm", "embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "batch": {"global_size": BATCH},
    "dense_optimizer": {"learning_rate": 0.002, "schedule": {"decay": "constant", "warmup_fraction": 0.1}},
    "run": {"epochs": 1, "eval_every_fraction": 0.5, "yardsticks": "none"},
    "resources": {"workers_per_node": 2},
}


def write_job(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**DOCUMENT, **changes}))
    return path


def read_tensors(directory: RunDirectory) -> dict[str, torch.Tensor]:
    newest = find_newest_checkpoint(directory.checkpoints)
    assert newest is not None
    state = read_whole(newest.path)
    # torch's own generator is not seeded, and nothing in a run draws from it.
    return {
        name: value
        for name, value in state.items()
        if isinstance(value, torch.Tensor) and not name.startswith("random.")
    }


@pytest.mark.slow
def test_a_cooldown_equals_a_straight_run_of_its_length_to_the_bit(tmp_path: Path) -> None:
    directories = [RunDirectory(tmp_path / name) for name in ("constant", "cooled", "straight")]
    constant, cooled, straight = directories
    trained = run("train", write_job(tmp_path / "job.json"), "--run-directory", constant.path)
    assert trained.returncode == 0, trained.stderr
    step = list_checkpoints(constant.checkpoints)[-1].step
    ended = run("cooldown", constant.path, "--checkpoint", step, "--fraction", 0.5, "--out", cooled.path, "--json")
    assert ended.returncode == 0, ended.stderr
    (num_rows,) = (
        report.details["num_train_rows"]
        for report in reports_of(constant, "events", 1)
        if isinstance(report, EventReport) and report.name == DATA_LOADED
    )
    length = step * BATCH * 3 // 2
    num_warmup_steps = round(0.1 * round(num_rows / BATCH))
    schedule = {
        "decay": "wsd",
        "cooldown_fraction": 1 / 3,
        "warmup_fraction": num_warmup_steps / round(length / BATCH),
    }
    job = write_job(
        tmp_path / "straight.json",
        dense_optimizer=DOCUMENT["dense_optimizer"] | {"schedule": schedule},
        run={**DOCUMENT["run"], "epochs": length / num_rows, "keep_model": "last"},
    )
    trained = run("train", job, "--run-directory", straight.path)
    assert trained.returncode == 0, trained.stderr
    found, expected = read_tensors(cooled), read_tensors(straight)
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
    assert f"resumes at step {step} of {-(-length // BATCH)}: " in ended.stderr
    assert json.loads(ended.stdout)["num_steps"] == -(-length // BATCH) > step
    assert cooled.model.is_dir()


def test_a_run_without_such_a_checkpoint_says_which_it_has_and_nothing_is_written(
    dlrm: Command, tmp_path: Path
) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.attempt(1).create()
    directory.spec.write_text(resolve(JobConfig.model_validate(DOCUMENT)).model_dump_json())
    for options in ([], ["--checkpoint", "7"]):
        ended = dlrm("cooldown", str(directory.path), "--out", str(tmp_path / "cooled"), *options)
        assert ended.code == 2
        assert f"--checkpoint: {'step-7 is no' if options else str(directory.checkpoints)}" in ended.err
    ended = dlrm("cooldown", str(tmp_path))
    assert (ended.code, "not the directory of a run" in ended.err) == (2, True)
    assert not (tmp_path / "cooled").exists()


@on_sqlite
def test_the_cooldown_of_a_job_is_a_new_job_that_starts_from_its_model(
    dlrm: Command, live_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLRM_URL", live_api.url)
    monkeypatch.setenv("DLRM_API_KEY", get_key(live_api.submitter.headers))
    settings = {"dense_optimizer": {"schedule": {"decay": "constant"}}, "run": {"epochs": 2}}
    done = live_api.submit(behaviour="succeed", **settings)
    live_api.wait_for(done["id"], "SUCCEEDED")
    write_model(Path(done["run_directory"]) / "model")
    write_checkpoint(Path(done["run_directory"]), make_document(**settings))
    ended = dlrm("cooldown", done["id"], "--fraction", "0.25")
    assert ended.code == 0, ended.err
    job = live_api.viewer.get(f"/v1/jobs/{ended.out.strip()}").json()
    assert job["spec"]["run"]["warm_start"] == {"from": done["id"], "optimizer_state": True}
    assert job["spec"]["run"]["epochs"] == 0.5
    assert job["spec"]["dense_optimizer"]["schedule"]["decay"] == "polynomial"
    # Its own rate has fallen.
    refused = dlrm("cooldown", job["id"])
    assert (refused.code, "dense_optimizer.schedule.decay: the rate has fallen" in refused.err) == (2, True)
    refused = dlrm("cooldown", done["id"], "--out", "cooled")
    assert (refused.code, f"--out: not valid with {done['id']}: its cooldown is a new job" in refused.err) == (2, True)
