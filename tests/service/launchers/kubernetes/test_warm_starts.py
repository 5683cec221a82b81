"""Models that jobs on a cluster start from: directories of claims, buckets, and runs of other jobs."""

from pathlib import Path
from typing import Any

import pytest

from dlrm.config import ConfigError
from service.store.models import Job, JobDocument
from tests.service.launchers.kubernetes.scene import Scene

pytestmark = pytest.mark.parametrize("scene", [{"data_stores": ["s3://ads/models"]}], indirect=True)


def submit_from(scene: Scene, source: str, **changes: Any) -> str:
    return scene.submit(run={"warm_start": {"from": source}}, **changes)


def read_source(scene: Scene, job_id: str) -> str:
    """Return where the attempts of a job look for the model."""
    with scene.services.database.read() as session:
        return session.get_one(JobDocument, job_id).resolved["job"]["run"]["warm_start"]["from"]


def leave_model(scene: Scene, job_id: str, model_path: str) -> None:
    """Have a job end with a model, without a cluster."""
    with scene.services.database.write() as session:
        job = session.get_one(Job, job_id)
        job.state, job.model_path = "SUCCEEDED", model_path


@pytest.mark.parametrize(
    ("named", "resolved"),
    [
        ("/data/clicks/models/spring", "/data/clicks/models/spring"),
        ("models/spring/", "/data/clicks/models/spring"),
        ("s3://ads/models/spring", "s3://ads/models/spring"),
    ],
)
def test_a_model_beside_the_data_is_looked_for_by_the_attempt(scene: Scene, named: str, resolved: str) -> None:
    assert read_source(scene, submit_from(scene, named)) == resolved


@pytest.mark.parametrize("named", ["/runs/job_1/model", "/data/clicks/../../runs/job_1", "s3://ads/other", "s3://"])
def test_a_model_elsewhere_is_refused_with_the_places_that_are_allowed(scene: Scene, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        submit_from(scene, named)
    (fault,) = refused.value.errors
    assert fault.field == "run.warm_start.from"
    assert fault.valid is not None
    assert "under /data/clicks or s3://ads/models;" in fault.valid


def test_a_run_on_a_claim_is_seen_by_jobs_of_the_cluster_alone(scene: Scene) -> None:
    earlier = scene.submit()
    leave_model(scene, earlier, f"/runs/{earlier}/model")
    assert read_source(scene, submit_from(scene, earlier)) == f"/runs/{earlier}"
    with pytest.raises(ConfigError, match="that jobs of 'local' do not see"):
        submit_from(scene, earlier, resources={"launcher": "local"}, data={"format": "synthetic"})


def test_jobs_of_the_cluster_do_not_see_a_run_on_the_service_s_machine(scene: Scene) -> None:
    earlier = scene.submit(resources={"launcher": "local"}, data={"format": "synthetic"})
    with scene.services.database.read() as session:
        directory = Path(session.get_one(Job, earlier).run_directory)
    leave_model(scene, earlier, str(directory / "model"))
    with pytest.raises(ConfigError, match="that jobs of 'kubernetes' do not see"):
        submit_from(scene, earlier)


def test_a_run_in_a_bucket_is_seen_by_all(scene: Scene) -> None:
    earlier = scene.submit()
    leave_model(scene, earlier, f"s3://ads/runs/{earlier}/model")
    job_id = submit_from(scene, earlier, resources={"launcher": "local"}, data={"format": "synthetic"})
    assert read_source(scene, job_id) == f"s3://ads/runs/{earlier}"
