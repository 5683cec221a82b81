"""Downloads: ranges of files and archives; files that grow, change and vanish; clients that are slow or gone."""

import threading
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.files.artifacts import find_artifact
from service.files.contents import TarContent
from service.http.answers import PART_BYTES
from service.http.downloads import READ_BYTES
from service.reports.service import ReportService
from tests.patience import PATIENCE_SECONDS
from tests.service.api import Api
from tests.service.files.runs import MODEL_FILES, fill_run, write
from tests.service.raw import connect, make_head

LARGE_BYTES = 64 * 2**20
"""Size of a file that does not fit into the buffers of a connection."""


@pytest.fixture(scope="module")
def path(shared_api: Api) -> str:
    """Path of the artifacts of a run."""
    job = shared_api.submit()
    fill_run(job)
    return f"/v1/jobs/{job['id']}/artifacts"


@pytest.mark.parametrize("name", ["model", "model/weights.safetensors"])
def test_ranges_put_together_are_the_whole(shared_api: Api, path: str, name: str) -> None:
    whole = shared_api.viewer.get(f"{path}/{name}")
    size, tag = len(whole.content), whole.headers["etag"]
    cuts = [0, 1, 511, 512, 513, size // 3, size // 2, size - 1025, size - 1, size]
    parts = b""
    for start, end in pairwise(cuts):
        asked = {"Range": f"bytes={start}-{end - 1}", "If-Range": tag}
        answer = shared_api.viewer.get(f"{path}/{name}", headers=asked)
        assert (answer.status_code, answer.headers["content-range"]) == (206, f"bytes {start}-{end - 1}/{size}")
        parts += answer.content
    assert parts == whole.content
    assert whole.headers["accept-ranges"] == "bytes"


@settings(max_examples=60)
@given(st.data())
def test_any_range_of_an_archive_is_the_same(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    run = tmp_path_factory.getbasetemp() / "run"
    for name, content in MODEL_FILES.items():
        if not (run / "model" / name).exists():
            write(run / "model" / name, content)
    found = find_artifact(run, "model")
    assert found is not None
    archive = TarContent(found.files, "model")
    start = data.draw(st.integers(0, archive.num_bytes))
    end = data.draw(st.integers(start, archive.num_bytes))
    assert archive.read(start, end - start) == archive.read(0, archive.num_bytes)[start:end]


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=-3", 206, b"wo\n"),
        ("bytes=4-", 206, b"two\n"),
        ("bytes=4-999", 206, b"two\n"),
        ("bytes=-999", 206, b"one\ntwo\n"),
        ("bytes=0-0", 206, b"o"),
        ("bytes=0-1,3-4", 200, b"one\ntwo\n"),
        ("bytes=3-1", 200, b"one\ntwo\n"),
        ("bytes=x-", 200, b"one\ntwo\n"),
        ("bytes=" + "9" * 5000 + "-", 200, b"one\ntwo\n"),
        ("lines=1-", 200, b"one\ntwo\n"),
        ("bytes=8-", 416, None),
        ("bytes=-0", 416, None),
    ],
)
def test_forms_of_ranges(shared_api: Api, path: str, asked: str, status: int, content: bytes | None) -> None:
    answer = shared_api.viewer.get(f"{path}/attempt-1/logs/rank-0.log", headers={"Range": asked})
    assert answer.status_code == status
    if content is None:
        assert answer.headers["content-range"] == "bytes */8"
        assert answer.json()["type"] == "urn:dlrm:problem:range-not-satisfiable"
    else:
        assert answer.content == content


def test_a_tag_says_whether_the_bytes_are_the_same(shared_api: Api) -> None:
    job = shared_api.submit()
    run = fill_run(job)
    path = f"/v1/jobs/{job['id']}/artifacts/model"
    tag = shared_api.viewer.get(path).headers["etag"]
    assert shared_api.viewer.get(path, headers={"If-None-Match": tag}).status_code == 304
    write(run.model / "weights.safetensors", b"others")
    new = shared_api.viewer.get(path, headers={"If-None-Match": tag})
    assert (new.status_code, new.headers["etag"] == tag) == (200, False)
    resumed = shared_api.viewer.get(path, headers={"Range": "bytes=5-", "If-Range": tag})
    assert (resumed.status_code, resumed.content) == (200, new.content)


def test_head_reads_nothing(shared_api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = shared_api.viewer.get(f"{path}/model").headers["content-length"]
    monkeypatch.setattr(TarContent, "read", None)
    answer = shared_api.viewer.head(f"{path}/model")
    assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, size, b"")


def test_a_log_that_grows_while_it_is_sent_is_sent_as_long_as_it_was(shared_api: Api) -> None:
    job = shared_api.submit()
    log = fill_run(job).attempt(1).rank_log(0)
    log.write_bytes(b"a" * LARGE_BYTES)
    path = f"/v1/jobs/{job['id']}/artifacts/attempt-1/logs/rank-0.log"
    with shared_api.viewer.stream("GET", path) as answer, log.open("ab") as grown:
        parts = answer.iter_raw(READ_BYTES)
        num_bytes = len(next(parts))
        grown.write(b"b" * 10)
        grown.flush()
        num_bytes += sum(len(part) for part in parts)
    assert num_bytes == LARGE_BYTES
    assert shared_api.viewer.get(path, headers={"Range": f"bytes={LARGE_BYTES}-"}).content == b"b" * 10


def test_a_download_whose_file_vanishes_is_cut_off(shared_api: Api) -> None:
    job = shared_api.submit()
    weights = fill_run(job).model / "weights.safetensors"
    weights.write_bytes(b"a" * LARGE_BYTES)
    path = f"/v1/jobs/{job['id']}/artifacts/model"
    with shared_api.viewer.stream("GET", path) as answer:
        weights.unlink()
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()


def test_clients_that_do_not_read_hold_neither_threads_nor_memory(shared_api: Api) -> None:
    job = shared_api.submit()
    weights = fill_run(job).model / "weights.safetensors"
    with weights.open("wb") as file:
        file.truncate(2**30)
    path = f"/v1/jobs/{job['id']}/artifacts/model"
    credentials = shared_api.viewer.headers["authorization"]
    before = find_peak_bytes()
    with ExitStack() as stack:
        for _ in range(15):
            connection = stack.enter_context(connect(shared_api.url))
            connection.send(make_head("GET", path, authorization=credentials))
            connection.wait_until_readable()
        # Two threads read files, and none of them waits for one of these clients.
        assert shared_api.viewer.get(f"{path}/empty").content == b""
        assert shared_api.viewer.get(f"/v1/jobs/{job['id']}/logs").status_code == 200
        assert find_peak_bytes() - before < 15 * (4 * READ_BYTES + 16 * PART_BYTES)
    # They have gone, and so have their slots: there are 20 for one key.
    for _ in range(25):
        assert shared_api.viewer.head(path).status_code == 200


def find_peak_bytes() -> int:
    """Return the largest memory that this process has had, in which the service runs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def test_logs_and_downloads_do_not_wait_for_curves(shared_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = shared_api.submit()
    fill_run(job)
    path, may_end, has_begun = f"/v1/jobs/{job['id']}", threading.Event(), threading.Event()

    def take_long(*_: object) -> str:
        has_begun.set()
        may_end.wait(PATIENCE_SECONDS)
        return "{}"

    monkeypatch.setattr(ReportService, "read_metrics", take_long)
    curve = threading.Thread(target=lambda: shared_api.admin.get(f"{path}/metrics"))
    curve.start()
    try:
        assert has_begun.wait(PATIENCE_SECONDS)
        for asked in ("/logs", "/logs/matches?q=one", "/artifacts", "/artifacts/model"):
            assert shared_api.viewer.get(f"{path}{asked}").status_code == 200
        assert curve.is_alive()
    finally:
        may_end.set()
        curve.join()
