"""`run.warm_start.from` through the API: which jobs and directories a job may start from."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import DataConfig, ModelConfig, make_identity, parse_job
from dlrm.record import CheckpointManifest, RunDirectory
from service.ids import new_id
from service.jobs.paths import PathError, find_directory_under_roots
from service.settings import Settings
from service.store.job_repository import JobRepository
from tests.service.api import Api, make_document

Document = dict[str, Any]


def write_model(directory: Path, **changes: Any) -> Path:
    """Write the files of a model that the service reads."""
    config = {
        "model": ModelConfig().model_dump(mode="json"),
        "data": DataConfig(train=["/far/day.tsv"]).model_dump(mode="json"),
        "num_dense": 13,
        "table_rows": {"C1": 10},
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**config, **changes}))
    (directory / "model.safetensors").write_text("weights")
    return directory


def write_checkpoint(directory: Path, document: Document) -> None:
    path = RunDirectory(directory).checkpoint(5)
    path.mkdir(parents=True)
    identity = make_identity(parse_job(document))
    manifest = CheckpointManifest(
        step=5,
        num_steps=5,
        num_samples=5,
        time=0.0,
        world_size=1,
        identity=identity,
        data_checksum=None,
        files={},
    )
    manifest.write(path)


def add_warm_start(document: Document, source: str | Path, **changes: Any) -> Document:
    return {**document, "run": {"warm_start": {"from": str(source), **changes}}}


def submit_refused(api: Api, document: Document) -> dict[str, str]:
    """Submit a document that the service refuses, and return the one error."""
    response = api.submitter.post("/v1/jobs", json=document)
    assert response.status_code == 422, response.text
    (fault,) = response.json()["errors"]
    return fault


def get_resolved_source(api: Api, job_id: str) -> str:
    """Return the source of the warm start as the trainer gets it."""
    with api.services.database.read() as session:
        return JobRepository(session).get_document(job_id).resolved["job"]["run"]["warm_start"]["from"]


def submit_accepted(api: Api, document: Document) -> dict[str, Any]:
    """Submit a document that the service accepts, and return the job."""
    response = api.submitter.post("/v1/jobs", json=document)
    assert response.status_code == 201, response.text
    return response.json()


def test_the_id_of_a_job_that_has_succeeded_leads_to_its_run(live_api: Api) -> None:
    done = live_api.submit(behaviour="succeed")
    live_api.wait_for(done["id"], "SUCCEEDED")
    run = Path(done["run_directory"])
    no_model = submit_refused(live_api, add_warm_start(make_document(), done["id"]))
    assert no_model["field"] == "run.warm_start.from"
    assert no_model["message"] == f"'{done['id']}' contains no model: a run has one once it has succeeded"
    write_model(run / "model")
    created = submit_accepted(live_api, add_warm_start(make_document(), done["id"]))
    assert get_resolved_source(live_api, created["id"]) == str(run.resolve())
    shown = live_api.viewer.get(f"/v1/jobs/{created['id']}").json()
    assert shown["spec"]["run"]["warm_start"] == {"from": done["id"], "optimizer_state": False}

    with_state = add_warm_start(make_document(), done["id"], optimizer_state=True)
    assert submit_refused(live_api, with_state)["field"] == "run.warm_start.optimizer_state"
    write_checkpoint(run, make_document())
    submit_accepted(live_api, with_state)
    other = {**with_state, "dense_optimizer": {"name": "sgd"}, "table_optimizer": {"name": "sgd"}}
    errors = live_api.submitter.post("/v1/jobs", json=other).json()["errors"]
    assert {error["field"] for error in errors} == {"dense_optimizer.name", "table_optimizer.name"}
    assert errors[0]["valid"] == '"adam", or run.warm_start.optimizer_state = false'


def test_other_jobs_are_refused_with_their_state_and_what_would_be_valid(shared_api: Api) -> None:
    waiting = shared_api.submit()["id"]
    fault = submit_refused(shared_api, add_warm_start(make_document(), waiting))
    assert fault["field"] == "run.warm_start.from"
    assert fault["message"] == f"'{waiting}' is QUEUED, but only a job that has SUCCEEDED has a model"
    assert "the id of a job that has SUCCEEDED, or the directory of a run or of its model under" in fault["valid"]
    unknown = new_id("job")
    assert (
        submit_refused(shared_api, add_warm_start(make_document(), unknown))["message"]
        == f"'{unknown}' is not a job of this service"
    )


@pytest.mark.parametrize("name", ["model", "run"])
def test_a_directory_under_the_data_roots_is_taken_whichever_way_it_is_named(
    shared_api: Api, tmp_path: Path, name: str
) -> None:
    root = Path(shared_api.services.settings.data_roots[0])
    directory = root / tmp_path.name
    write_model(directory if name == "model" else directory / "model")
    (root / f"link-{name}").symlink_to(directory)
    for named in (tmp_path.name, str(directory), f"link-{name}", f"{tmp_path.name}/../{tmp_path.name}"):
        created = submit_accepted(shared_api, add_warm_start(make_document(), named))
        assert get_resolved_source(shared_api, created["id"]) == str(directory)
        assert created["state"] == "QUEUED"


def test_paths_that_are_not_to_be_read_are_refused_telling_nothing_of_them(shared_api: Api, tmp_path: Path) -> None:
    settings = shared_api.services.settings
    root = Path(settings.data_roots[0])
    outside = write_model(tmp_path / "outside")
    run_of_another = write_model(settings.runs_directory / "job_of_another" / "model").parent
    (root / "escape").symlink_to(outside)
    (root / "into_state").symlink_to(run_of_another)
    write_model(root / ".hidden" / "model")
    (root / "seen").symlink_to(root / ".hidden" / "model")
    linked = write_model(root / "linked")
    (linked / "model.safetensors").unlink()
    (linked / "model.safetensors").symlink_to(outside / "model.safetensors")
    (root / "empty").mkdir()
    (root / "damaged").mkdir()
    (root / "damaged" / "config.json").write_text('{"model": 1}')
    faults = {
        "../outside": "is outside the data roots",
        str(outside): "is outside the data roots",
        str(run_of_another): "is outside the data roots",
        "escape": "leads outside the data roots",
        "into_state": "leads outside the data roots",
        ".hidden/model": "starts with a dot",
        "seen": "leads outside the data roots, or into a hidden directory",
        "linked": "leads outside the data roots",
        "empty": "contains no model",
        "nowhere": "is not a directory",
        "day_0.tsv": "is not a directory",
        "damaged": "its config.json is damaged at model",
        "s3://bucket/model": "is remote",
    }
    for named, message in faults.items():
        fault = submit_refused(shared_api, add_warm_start(make_document(), named))
        assert fault["field"] == "run.warm_start.from"
        assert fault["message"].startswith(repr(named)), fault
        assert message in fault["message"], fault
        assert str(root) in fault["valid"]


def test_runs_of_the_service_are_private_where_they_lie_under_a_root(settings: Settings, data_root: Path) -> None:
    run = write_model(data_root / "runs" / "job" / "model").parent
    with pytest.raises(PathError, match="a directory of the service itself"):
        find_directory_under_roots(str(run), [str(data_root)], [data_root / "runs"])


def test_checkpoints_of_others_are_not_read(shared_api: Api) -> None:
    directory = Path(shared_api.services.settings.data_roots[0]) / "with_checkpoint"
    write_model(directory / "model")
    write_checkpoint(directory, make_document())
    fault = submit_refused(shared_api, add_warm_start(make_document(), "with_checkpoint", optimizer_state=True))
    assert fault["field"] == "run.warm_start.optimizer_state"
    assert fault["message"] == "'with_checkpoint' is not a job of this service, and other checkpoints are not read"
    assert fault["valid"] == "false, or in `from` the id of a job that has SUCCEEDED"


def test_a_model_of_another_shape_is_refused_when_the_job_is_submitted(shared_api: Api) -> None:
    root = Path(shared_api.services.settings.data_roots[0])
    model = {"embedding_dim": 16, "bottom_mlp": [32, 16], "top_mlp": [64, 1]}
    write_model(root / "small", model=ModelConfig.model_validate(model).model_dump(mode="json"))
    other = {"embedding_dim": 64, "bottom_mlp": [512, 256, 64]}
    document = {**add_warm_start(make_document(), "small"), "model": other}
    response = shared_api.submitter.post("/v1/jobs", json=document)
    assert {error["field"] for error in response.json()["errors"]} == {
        "model.embedding_dim",
        "model.bottom_mlp",
        "model.top_mlp",
    }
    submit_accepted(shared_api, {**add_warm_start(make_document(), "small"), "model": model})
    synthetic = {"format": "synthetic"}
    fault = submit_refused(shared_api, {**add_warm_start(make_document(data=synthetic), "small"), "model": model})
    assert (fault["field"], fault["valid"]) == ("data.format", '"criteo_tsv"')
