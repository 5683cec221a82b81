"""`run.warm_start.from` of `dlrm train`: a path, counted from the job file."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.local.data_files import make_paths_absolute
from cli.local.documents import read_job
from cli.local.errors import BadInputError
from cli.local.run_documents import require_warm_start_model
from dlrm.config import DataConfig, ModelConfig
from dlrm.record import RunDirectory


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with a run that has a model, one that has none, and a place for a job."""
    model = RunDirectory(tmp_path / "runs" / "old").model
    model.mkdir(parents=True)
    config = {
        "model": ModelConfig().model_dump(mode="json"),
        "data": DataConfig(train=["/day.tsv"]).model_dump(mode="json"),
        "num_dense": 13,
        "table_rows": {},
    }
    (model / "config.json").write_text(json.dumps(config))
    (tmp_path / "runs" / "failed").mkdir()
    (tmp_path / "runs" / "failed" / "spec.json").write_text("{}")
    (tmp_path / "jobs").mkdir()
    return tmp_path


def source_of(here: Path, source: str, **sections: Any) -> str:
    """What the run is told."""
    path = here / "jobs" / "job.json"
    warm_start = {"from": source, **sections.pop("warm_start", {})}
    path.write_text(json.dumps({"data": {"train": ["x"]}, "run": {"warm_start": warm_start}, **sections}))
    job = make_paths_absolute(read_job(path)[1], path)
    require_warm_start_model(job, path)
    assert job.run.warm_start is not None
    return job.run.warm_start.source


def test_a_run_or_its_model_is_named_relative_to_the_job_file_or_absolute(here: Path) -> None:
    run = here / "runs" / "old"
    (here / "latest").symlink_to(run)
    assert source_of(here, "../runs/old") == str(run)
    assert source_of(here, "../runs/old/model") == str(run / "model")
    assert source_of(here, str(run)) == str(run)
    assert source_of(here, "../latest") == str(run), "the link may lead elsewhere tomorrow"


def test_a_job_that_starts_from_nothing_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"data": {"train": ["x"]}}')
    job = make_paths_absolute(read_job(path)[1], path)
    require_warm_start_model(job, path)
    assert job.run.warm_start is None


@pytest.mark.parametrize(
    ("source", "sections", "said"),
    [
        ("../runs/none", {}, "runs/none is not a directory (valid: the directory of a succeeded run"),
        ("../runs/failed", {}, "runs/failed contains no model: a run has one once it has succeeded"),
        ("..", {}, "contains no model"),
        (
            "job_01M81BF22JM2KW445N0SKBFFMW",
            {},
            "is not a directory (valid: the directory of a succeeded run, or of its model; the id",
        ),
        ("../runs/old", {"warm_start": {"optimizer_state": True}}, "run.warm_start.optimizer_state: there is no"),
        ("../runs/old", {"data": {"format": "synthetic"}}, "data.format: is synthetic, but the model"),
        (
            "../runs/old",
            {"model": {"embedding_dim": 8, "bottom_mlp": [512, 256, 8]}},
            "model.embedding_dim: is 8, but 64 in the model that the run starts from (valid: 64)",
        ),
    ],
)
def test_what_cannot_be_started_from_is_told_before_anything_starts(
    here: Path, source: str, sections: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInputError) as refused:
        source_of(here, source, **sections)
    assert refused.value.lines[0].startswith(str(here / "jobs" / "job.json"))
    assert said in refused.value.lines[0]


def test_train_refuses_it_with_exit_code_2_and_makes_no_run_directory(here: Path, dlrm: Any) -> None:
    path = here / "jobs" / "job.json"
    document = {"data": {"format": "synthetic"}, "run": {"warm_start": {"from": "../runs/none"}}}
    path.write_text(json.dumps(document))
    ended = dlrm("train", str(path), "--run-directory", str(here / "run"))
    assert ended.code == 2
    assert "run.warm_start.from" in ended.err
    assert not (here / "run").exists()
