"""Artifacts over REST: what is listed and sent, and what never is."""

import io
import tarfile
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.service.api import Api
from tests.service.files.runs import MODEL_FILES, SECRET, fill_run, list_names, write


def test_all_that_a_run_leaves_is_listed_and_nothing_else(shared_api: Api) -> None:
    job = shared_api.submit()
    assert list_names(shared_api, job["id"]) == []
    fill_run(job)
    answer = shared_api.viewer.get(f"/v1/jobs/{job['id']}/artifacts").json()["items"]
    assert [(item["name"], item["kind"], item["num_bytes"], item["is_directory"]) for item in answer] == [
        ("model", "model", sum(map(len, MODEL_FILES.values())), True),
        ("checkpoints/step-00000010", "checkpoint", answer[1]["num_bytes"], True),
        ("attempt-1/logs/launch.log", "log", 7, False),
        ("attempt-1/logs/rank-0.log", "log", 8, False),
        ("attempt-1/profile", "profile", 2, True),
        ("attempt-1/outcome.json", "outcome", 2, False),
        ("spec.json", "document", 2, False),
    ]
    assert all(item["place"] is None and item["modified_at"] for item in answer)
    below = [name.removeprefix("model/") for name in list_names(shared_api, job["id"], below="model")]
    assert below == sorted(MODEL_FILES)
    assert list_names(shared_api, job["id"], below="model/encoders") == ["model/encoders/grüezi.parquet"]
    assert list_names(shared_api, job["id"], below="model/empty") == ["model/empty"]
    assert shared_api.viewer.get(f"/v1/jobs/{job['id']}/artifacts", params={"below": "model/no"}).status_code == 404


def test_a_checkpoint_is_the_files_that_it_lists_hidden_ones_too(shared_api: Api) -> None:
    job = shared_api.submit()
    directory = fill_run(job).checkpoint(10)
    write(directory / "later", SECRET.encode())
    name = "checkpoints/step-00000010"
    listed = list_names(shared_api, job["id"], below=name)
    assert listed == [f"{name}/{file}" for file in (".metadata", "COMPLETE", "weights")]
    assert get(shared_api, job["id"], f"{name}/.metadata").content == b"m"
    assert get(shared_api, job["id"], f"{name}/later").status_code == 404
    assert SECRET.encode() not in get(shared_api, job["id"], name).content


def test_files_are_sent_as_they_are(shared_api: Api) -> None:
    job = shared_api.submit()
    fill_run(job)
    for name, content in MODEL_FILES.items():
        answer = get(shared_api, job["id"], f"model/{name}")
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["content-length"] == str(len(content))
    log = get(shared_api, job["id"], "attempt-1/logs/rank-0.log")
    assert (log.content, log.headers["content-type"]) == (b"one\ntwo\n", "application/octet-stream")
    assert f"{job['id']}-attempt-1-logs-rank-0.log" in log.headers["content-disposition"]


def test_a_directory_is_an_archive_that_any_tar_reads(shared_api: Api, tmp_path: Path) -> None:
    job = shared_api.submit()
    fill_run(job)
    answer = get(shared_api, job["id"], "model")
    assert answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path, filter="data")
    found = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == {
        f"model/{name}": content for name, content in MODEL_FILES.items()
    }


@pytest.mark.parametrize(
    "name",
    [
        "attempt-1/push.json",
        "attempt-1/nodes-token",
        "attempt-1/logs/../push.json",
        "attempt-1/spool/rank-0.events.jsonl",
        "model/../attempt-1/push.json",
        "model/.x",
        "model/a.part",
        "model.part/b",
        "model//manifest.json",
        "model/",
        "/model",
        "checkpoints/step-00000020",
        "checkpoints/step-00000020/weights",
        "checkpoints",
        "run-store.json",
        "prepared/rows",
        "../model",
        f"attempt-{'1' * 300}/profile",
        f"model/{'x' * 300}",
        "model/manifest.json/x",
        "",
    ],
)
def test_what_is_private_unfinished_or_outside_is_not_found(shared_api: Api, name: str) -> None:
    job = shared_api.submit()
    fill_run(job)
    answer = get(shared_api, job["id"], name)
    assert answer.status_code == 404
    assert SECRET not in answer.text


def test_links_lead_nowhere(shared_api: Api, tmp_path: Path) -> None:
    job = shared_api.submit()
    run = fill_run(job)
    write(tmp_path / "outside" / "file", SECRET.encode())
    (run.model / "link").symlink_to(tmp_path / "outside" / "file")
    (run.model / "encoders" / "below").symlink_to(tmp_path / "outside")
    (run.attempt(1).logs / "rank-1.log").symlink_to(tmp_path / "outside" / "file")
    run.scores.path.symlink_to(tmp_path / "outside")
    for name in ("model/link", "model/encoders/below/file", "attempt-1/logs/rank-1.log", "scores", "scores/file"):
        assert get(shared_api, job["id"], name).status_code == 404
    assert "scores" not in list_names(shared_api, job["id"])
    assert SECRET.encode() not in get(shared_api, job["id"], "model").content


def test_a_runs_directory_that_is_a_link_is_read(api: Api, tmp_path: Path) -> None:
    job = api.submit()
    elsewhere = tmp_path / "large-disk"
    api.services.settings.runs_directory.rename(elsewhere)
    api.services.settings.runs_directory.symlink_to(elsewhere)
    fill_run(job)
    assert get(api, job["id"], "spec.json").content == b"{}"


def get(api: Api, job_id: str, name: str) -> httpx.Response:
    return api.viewer.get(f"/v1/jobs/{job_id}/artifacts/{quote(name)}")
