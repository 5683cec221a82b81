import pytest

from service.settings import Settings
from tests.service.api import Api, make_document
from tests.service.databases import on_sqlite

pytestmark = on_sqlite


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings whose data root contains the state directory, as it does where neither is set."""
    hidden = settings.state_directory.parent / ".dlrm"
    hidden.mkdir()
    (hidden / "ready.json").write_text('{"key": "secret"}')
    return settings.model_copy(update={"data_roots": [str(settings.state_directory.parent)]})


@pytest.mark.parametrize("pattern", [".dlrm/ready.json", ".d*/*", "state/*", "state", "*/service.sqlite3"])
@pytest.mark.parametrize("name", ["train", "eval"])
def test_a_job_cannot_name_files_of_the_service(api: Api, pattern: str, name: str) -> None:
    data = {"train": ["data/day_0.tsv"], name: [pattern]}
    response = api.submitter.post("/v1/jobs", json=make_document(data=data))
    assert response.status_code == 422, response.text
    (fault,) = response.json()["errors"]
    assert fault["field"] == f"data.{name}.0"
    assert "of the service itself" in fault["message"] or "starts with a dot" in fault["message"]


def test_a_secret_in_a_path_is_not_answered(api: Api) -> None:
    for train in (["s3://KEY:SECRET@bucket/x"], "s3://KEY:SECRET@bucket/x"):
        response = api.submitter.post("/v1/jobs", json=make_document(data={"train": train}))
        assert response.status_code == 422
        assert "SECRET" not in response.text
