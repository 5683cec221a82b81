"""Data roots that are not open to all: who may train on, plan with and start from what is below them."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from service.access.data_roots import AccessTable, AccessTableError, DataAccess, read_data_access
from service.access.principal import Principal, Role
from service.app import create_services
from service.ids import new_id
from service.jobs import paths
from service.jobs.document import parse_document
from service.launchers.protocol import FilePlaces
from service.settings import Settings
from service.store.models import JobDocument
from tests.service.api import ROWS, Api, make_document, serve_api
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_warm_start import add_warm_start, write_model

TABLE = """
[groups]
advertising = ["ann", "bob"]
[roots]
"{closed}" = {{groups = ["advertising"], owners = ["zoe"]}}
"{nobody}" = {{}}
"s3://clicks/ads" = {{owners = ["zoe"]}}
"""


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Directory of advertising and zoe, with rows and a model."""
    directory = tmp_path / "closed"
    directory.mkdir()
    (directory / "secret.tsv").write_text(ROWS)
    write_model(directory / "model")
    return directory


@pytest.fixture
def guarded(settings: Settings, closed: Path, tmp_path: Path) -> Iterator[Api]:
    """Service with the directory `closed`, one of admins alone, and a prefix of a bucket."""
    nobody = tmp_path / "nobody"
    nobody.mkdir()
    (nobody / "wages.tsv").write_text(ROWS)
    table = tmp_path / "access.toml"
    table.write_text(TABLE.format(closed=closed, nobody=nobody))
    with serve_api(settings.model_copy(update={"access": table}), runs_control_loop=False) as running:
        yield running


def make_job(*patterns: str | Path, **changes: Any) -> dict[str, Any]:
    document = make_document(**changes)
    return document | {"data": document["data"] | {"train": [str(pattern) for pattern in patterns], "eval": None}}


def check_refused(response: httpx.Response, secret: str = "secret") -> str:
    """Check that a path was refused as one outside of all roots, and return what would be valid."""
    assert response.status_code == 422, response.text
    (fault,) = response.json()["errors"]
    assert "outside the data roots" in fault["message"]
    return fault["valid"]


@pytest.mark.parametrize("name", ["secret.tsv", "*.tsv", "."])
def test_who_may_not_read_a_root_cannot_tell_it_from_no_root(
    guarded: Api, closed: Path, data_root: Path, name: str
) -> None:
    with make_key(guarded, "carl", Role.SUBMITTER) as carl:
        inside = check_refused(carl.post("/v1/jobs", json=make_job(closed / name)))
        outside = check_refused(carl.post("/v1/jobs", json=make_job(closed.parent / "nothing" / name)))
        assert inside == outside
        assert str(data_root) in inside
        assert str(closed) not in inside
        link = data_root / "link"
        link.symlink_to(closed)
        check_refused_link(carl, str(link / name))
        assert carl.post("/v1/jobs", json=make_job("day_0.tsv")).status_code == 201


def check_refused_link(client: httpx.Client, path: str) -> None:
    response = client.post("/v1/jobs", json=make_job(path))
    assert response.status_code == 422
    assert "outside the data roots" in response.text


@pytest.mark.parametrize("owner", ["ann", "zoe"])
def test_the_members_of_a_group_and_owners_that_are_named_read_a_root(guarded: Api, closed: Path, owner: str) -> None:
    with make_key(guarded, owner, Role.SUBMITTER) as client:
        assert client.post("/v1/jobs", json=make_job(closed / "secret.tsv")).status_code == 201
        assert client.post("/v1/jobs", json=make_job("secret.tsv", "day_0.tsv")).status_code == 201
        check_refused(client.post("/v1/jobs", json=make_job(closed.parent / "nobody" / "wages.tsv")))


def test_an_admin_reads_every_root(guarded: Api, closed: Path) -> None:
    patterns = (closed / "secret.tsv", closed.parent / "nobody" / "wages.tsv")
    assert guarded.admin.post("/v1/jobs", json=make_job(*patterns)).status_code == 201


def test_a_prefix_of_a_bucket_is_its_readers_alone(guarded: Api) -> None:
    document = make_job("s3://clicks/ads/day_*.tsv")
    with make_key(guarded, "zoe", Role.SUBMITTER) as zoe, make_key(guarded, "ann", Role.SUBMITTER) as ann:
        assert zoe.post("/v1/jobs", json=document).status_code == 201
        check_refused(ann.post("/v1/jobs", json=document))


def test_the_trainer_of_a_job_reads_only_what_its_owner_may(guarded: Api, closed: Path, data_root: Path) -> None:
    roots: dict[str, list[str]] = {}
    for owner in ("ann", "carl"):
        with make_key(guarded, owner, Role.SUBMITTER) as client:
            job = client.post("/v1/jobs", json=make_job("day_0.tsv")).json()
        with guarded.services.database.read() as session:
            roots[owner] = session.get_one(JobDocument, job["id"]).resolved["data_roots"]
    assert roots == {"ann": [str(data_root), str(closed)], "carl": [str(data_root)]}


def test_a_plan_reads_no_sample_of_what_its_sender_may_not_read(guarded: Api, closed: Path) -> None:
    with make_key(guarded, "carl", Role.SUBMITTER) as carl, make_key(guarded, "ann", Role.SUBMITTER) as ann:
        document = add_warm_start(make_job("day_0.tsv"), closed / "model")
        asked: list[Any] = []
        planner = guarded.services.plans._planner
        make_plan = type(planner).make_plan
        guarded.services.plans._planner.make_plan = lambda resolved, **options: (  # pyright: ignore[reportAttributeAccessIssue]
            asked.append(resolved) or make_plan(planner, resolved, **options)
        )
        for client in (carl, ann):
            for sent in (make_job(closed / "secret.tsv"), document):
                client.post("/v1/plans", json=sent)
    assert [str(closed) in resolved.data_roots for resolved in asked] == [False, False, True, True]


def test_a_model_below_a_root_is_for_its_readers(guarded: Api, closed: Path) -> None:
    document = add_warm_start(make_job("day_0.tsv"), closed / "model")
    with make_key(guarded, "carl", Role.SUBMITTER) as carl, make_key(guarded, "bob", Role.SUBMITTER) as bob:
        check_refused(carl.post("/v1/jobs", json=document))
        accepted = bob.post("/v1/jobs", json=document)
        assert accepted.status_code == 201 or "outside the data roots" not in accepted.text


def test_a_restart_by_an_admin_reads_what_the_owner_of_the_job_may_read(guarded: Api, closed: Path) -> None:
    table = guarded.services.settings.access
    assert table is not None
    with make_key(guarded, "ann", Role.SUBMITTER) as ann:
        job = ann.post("/v1/jobs", json=make_job(closed / "secret.tsv")).json()
        ann.post(f"/v1/jobs/{job['id']}/cancel")
    assert guarded.admin.post(f"/v1/jobs/{job['id']}/restart").status_code == 201
    table.write_text(table.read_text().replace('"ann", ', ""))
    changed = read_data_access(table, guarded.services.launchers)
    guarded.services.jobs._access = changed
    check_refused(guarded.admin.post(f"/v1/jobs/{job['id']}/restart"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[roots", "is not TOML"),
        ('[roots]\n"{data}/below" = {{}}', "is below {data}, which all owners may read"),
        ('[roots]\n"{data}" = {{owners = ["ann"]}}\n"{data}/below" = {{owners = ["bob"]}}', "which ann may read"),
        ('[roots]\n"{data}-none" = {{}}', "{data}-none is not a directory here"),
        ('[roots]\n"data" = {{}}', "roots.data is neither an absolute path nor a URI"),
        ('[roots]\n"{data}" = {{groups = ["x"]}}', "names x, which is no group"),
        ('[roots]\n"{data}" = {{user = ["x"]}}', "roots.{data}.user: Extra inputs"),
    ],
)
def test_a_table_that_protects_nothing_or_means_nothing_ends_the_start(
    settings: Settings, data_root: Path, tmp_path: Path, table: str, message: str
) -> None:
    (data_root / "below").mkdir()
    path = tmp_path / "access.toml"
    path.write_text(table.format(data=data_root))
    with pytest.raises(AccessTableError) as caught:
        create_services(settings.model_copy(update={"access": path}))
    assert f"DLRM_ACCESS: {path}" in str(caught.value)
    assert message.format(data=data_root) in str(caught.value)


def test_a_root_below_may_have_more_readers_also_where_the_service_sees_no_file() -> None:
    table = {
        "groups": {"all": ["ann", "bob"]},
        "roots": {"/data": {"owners": ["ann"]}, "/data/ads": {"groups": ["all"]}, "s3://logs": {}},
    }
    places = FilePlaces(Path("/runs"), "/prepared", ["/data", "s3://logs"])
    launcher: Any = SimpleNamespace(shares_files=False, places=places)
    access = DataAccess({"far": launcher}, AccessTable.model_validate(table))

    def list_roots(owner: str, role: Role = Role.SUBMITTER) -> list[str]:
        return access.list_roots("far", Principal(new_id("key"), owner, owner, role))

    assert list_roots("ann") == ["/data", "/data/ads"]
    assert list_roots("bob") == ["/data/ads"]
    assert list_roots("carl") == []
    assert list_roots("root", Role.ADMIN) == ["/data", "s3://logs", "/data/ads"]
    job = parse_document({"data": {"train": ["/data/ads/day.tsv"]}})
    assert paths.resolve_unseen_paths(job, list_roots("bob")).data.train == ["/data/ads/day.tsv"]
    with pytest.raises(paths.ConfigError, match="you may read none"):
        paths.resolve_unseen_paths(job, list_roots("carl"))
