"""Downloads of the client: cut off, continued, checked, and never in the place of something else."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from dlrm.record import RunDirectory
from service.client import Client, DownloadError, Patience, ServiceError
from service.client.download import _check_name
from service.client.transport import Transport
from tests.service.api import Api
from tests.service.files.runs import MODEL_FILES, fill_run, make_manifest, write
from tests.service.raw import get_key

WEIGHTS = "weights.safetensors"
LARGE = bytes(range(256)) * 2**15
"""Content of a file that takes many parts: 8 MiB."""


@pytest.fixture
def client(shared_api: Api) -> Iterator[Client]:
    with Client(shared_api.url, get_key(shared_api.viewer.headers)) as client:
        yield client


@pytest.fixture
def run(shared_api: Api) -> RunDirectory:
    return fill_run(shared_api.submit())


@pytest.fixture
def large_run(run: RunDirectory) -> RunDirectory:
    write(run.model / WEIGHTS, LARGE)
    write(run.model / "manifest.json", make_manifest({WEIGHTS: LARGE}))
    return run


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ranges that are asked for from here on."""
    asked: list[str] = []
    open_body = Transport.open

    async def note(self: Transport, path: str, headers: Mapping[str, str]) -> httpx.Response:
        asked.append(f"{path.rsplit('/', 1)[1]} {headers['Range']}")
        return await open_body(self, path, headers)

    monkeypatch.setattr(Transport, "open", note)
    return asked


def read_all(directory: Path) -> dict[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def test_a_model_is_the_same_directory_here(client: Client, run: RunDirectory, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = client.download(run.path.name, to=tmp_path, on_progress=lambda *now: seen.append(now))
    assert path == tmp_path / "model"
    assert read_all(tmp_path) == {f"model/{name}": content for name, content in MODEL_FILES.items()}
    total = sum(map(len, MODEL_FILES.values()))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_each_artifact_can_be_downloaded(client: Client, run: RunDirectory, tmp_path: Path) -> None:
    names = [artifact.name for artifact in client.artifacts(run.path.name)]
    for name in [*names, "model/encoders/grüezi.parquet"]:
        client.download(run.path.name, name, tmp_path / "all", overwrite=name.startswith("model/"))
    for name in names:
        copy, original = tmp_path / "all" / name, run.path / name
        assert copy.is_dir() == original.is_dir()
        if copy.is_file():
            assert copy.read_bytes() == original.read_bytes()
    assert set(read_all(tmp_path / "all" / "checkpoints")) == {
        f"step-00000010/{name}" for name in ("COMPLETE", "weights", ".metadata")
    }


def test_what_is_there_is_replaced_only_if_that_is_asked_for(client: Client, run: RunDirectory, tmp_path: Path) -> None:
    write(tmp_path / "model" / "mine", b"precious")
    with pytest.raises(DownloadError, match="exists already"):
        client.download(run.path.name, to=tmp_path)
    assert read_all(tmp_path) == {"model/mine": b"precious"}
    client.download(run.path.name, to=tmp_path, overwrite=True)
    assert read_all(tmp_path / "model") == MODEL_FILES
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_download_that_was_interrupted_goes_on_where_it_was(
    client: Client, large_run: RunDirectory, tmp_path: Path, ranges: list[str]
) -> None:
    def interrupt(num_bytes: int, total: int) -> None:
        if num_bytes > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.download(large_run.path.name, to=tmp_path, on_progress=interrupt)
    assert not (tmp_path / "model").exists()
    client.download(large_run.path.name, to=tmp_path)
    assert (tmp_path / "model" / WEIGHTS).read_bytes() == LARGE
    starts = [int(asked.split("=")[1].split("-")[0]) for asked in ranges if asked.startswith(WEIGHTS)]
    assert starts[0] == 0
    assert starts[1] > len(LARGE) // 4


def test_an_unfinished_download_of_another_content_is_not_continued(
    client: Client, large_run: RunDirectory, tmp_path: Path, ranges: list[str]
) -> None:
    def interrupt(num_bytes: int, _: int) -> None:
        if num_bytes > 2**20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.download(large_run.path.name, to=tmp_path, on_progress=interrupt)
    write(large_run.model / WEIGHTS, LARGE[::-1])
    write(large_run.model / "manifest.json", make_manifest({WEIGHTS: LARGE[::-1]}))
    client.download(large_run.path.name, to=tmp_path)
    assert (tmp_path / "model" / WEIGHTS).read_bytes() == LARGE[::-1]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_connection_that_is_cut_again_and_again_loses_and_doubles_nothing(
    shared_api: Api, large_run: RunDirectory, tmp_path: Path, ranges: list[str]
) -> None:
    key = get_key(shared_api.viewer.headers)
    with cut_after(shared_api.url, 2**20) as url, Client(url, key) as client:
        client.download(large_run.path.name, to=tmp_path)
    assert (tmp_path / "model" / WEIGHTS).read_bytes() == LARGE
    assert len([asked for asked in ranges if asked.startswith(WEIGHTS)]) >= 8


def test_a_service_that_is_away_meanwhile_is_waited_for(
    shared_api: Api, large_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.client.transport.RETRY_WAITS_SECONDS", (0.02, 0.04, 0.08))
    monkeypatch.setattr("service.client.patience.FIRST_WAIT_SECONDS", 0.05)
    noted: list[str] = []
    patience = Patience(on_away=lambda _: noted.append("away"), on_back=lambda: noted.append("back"))
    key = get_key(shared_api.viewer.headers)
    with cut_after(shared_api.url, 4 * 2**20, num_refused=7) as url, Client(url, key) as client:
        client.download(large_run.path.name, to=tmp_path, patience=patience)
    assert (tmp_path / "model" / WEIGHTS).read_bytes() == LARGE
    assert noted[:2] == ["away", "back"]


def test_a_damaged_file_or_list_of_files_is_found(client: Client, run: RunDirectory, tmp_path: Path) -> None:
    write(run.model / WEIGHTS, b"x" * len(MODEL_FILES[WEIGHTS]))
    with pytest.raises(DownloadError, match=rf"model/{WEIGHTS} is damaged"):
        client.download(run.path.name, to=tmp_path)
    assert not (tmp_path / "model").exists()
    write(run.model / "manifest.json", b"{}")
    with pytest.raises(DownloadError, match="model is damaged"):
        client.download(run.path.name, to=tmp_path)


def test_a_file_that_changes_meanwhile_is_an_error(client: Client, large_run: RunDirectory, tmp_path: Path) -> None:
    def change(num_bytes: int, _: int) -> None:
        if num_bytes > 2**20:
            (large_run.model / "empty").write_bytes(b"full")

    with pytest.raises(DownloadError, match="changed meanwhile"):
        client.download(large_run.path.name, to=tmp_path, on_progress=change)
    assert not (tmp_path / "model").exists()


def test_what_is_not_there_is_an_error(client: Client, run: RunDirectory, tmp_path: Path) -> None:
    for name in ("scores", "attempt-1/push.json", "model/nothing"):
        with pytest.raises(ServiceError, match="there is no"):
            client.download(run.path.name, name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b", "", ".", "a//b", "a\\b"])
def test_no_name_leads_out_of_the_directory(name: str) -> None:
    with pytest.raises(DownloadError, match="is no name of an artifact"):
        _check_name(name)


@contextmanager
def cut_after(url: str, num_bytes: int, num_refused: int = 0) -> Iterator[str]:
    """Stand in front of a service, and cut each connection after so many bytes of answers.

    num_refused: connections that are refused after the first one that was cut.
    """
    parts = urlsplit(url)
    listening = socket.create_server(("127.0.0.1", 0))
    left = [num_refused]
    was_cut = threading.Event()

    def pump(source: socket.socket, sink: socket.socket, limit: float) -> None:
        with suppress(OSError):
            while limit > 0 and (data := source.recv(65_536)):
                sink.sendall(data)
                limit -= len(data)
            if limit <= 0:
                was_cut.set()
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listening.accept()
                if was_cut.is_set() and left[0] > 0:
                    left[0] -= 1
                    near.close()
                    continue
                far = socket.create_connection((parts.hostname or "", parts.port or 0))
                start(pump, near, far, float("inf"))
                start(pump, far, near, num_bytes)

    start(serve)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def start(function: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()
