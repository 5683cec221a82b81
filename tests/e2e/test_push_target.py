"""Launch processes that are told document and push target: what they begin with, and what reaches the service."""

import json
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.record import AttemptEnd, EventReport, Outcome, RunDirectory, find_newest_checkpoint, parse_report
from tests.bucket.server import Bucket
from tests.dlrm.reporting.line_server import LineServer, serve_lines
from tests.e2e.launching import ONE_RANK, TINY, find_free_port, start_attempt
from tests.e2e.test_bucket import RUN, STORE
from tests.patience import PATIENCE_SECONDS, wait_until


@pytest.fixture
def server() -> Iterator[LineServer]:
    with serve_lines() as running:
        yield running


@pytest.fixture
def mounted(tmp_path: Path, server: LineServer) -> Path:
    """Directory with the push target, as it may be mounted."""
    directory = tmp_path / "mounted"
    directory.mkdir()
    server.write_target(directory / "push.json")
    return directory


def write_document(directory: Path, **changes: Any) -> Path:
    path = directory / "document.json"
    path.write_text(resolve(JobConfig.model_validate({**TINY, "resources": ONE_RANK, **changes})).model_dump_json())
    path.chmod(stat.S_IREAD)
    return path


def make_run(path: Path) -> RunDirectory:
    """Make the parent of a run directory, into which a test writes the output of processes."""
    path.mkdir(parents=True)
    return RunDirectory(path)


def list_events(server: LineServer, rank: int = 0) -> list[EventReport]:
    reports = map(parse_report, server.lines.get((rank, "events"), []))
    return [report for report in reports if isinstance(report, EventReport)]


def get_end(server: LineServer) -> AttemptEnd:
    (line,) = server.lines[0, "outcome"]
    return AttemptEnd.model_validate_json(line)


@pytest.mark.slow
def test_a_stop_before_anything_is_trained_is_reported_too(
    tmp_path: Path, mounted: Path, server: LineServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DLRM_TERMINATION_LOG", str(tmp_path / "termination"))
    document = write_document(mounted, run={**RUN, "epochs": 1000})
    directory = make_run(tmp_path / "run")
    process = start_attempt(directory, 1, "--document", str(document), "--push-target", str(mounted / "push.json"))
    wait_until(directory.attempt(1).launch_log.exists, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 75
    end = get_end(server)
    assert end.outcome == Outcome.read(directory.attempt(1).outcome)
    assert end.outcome.state == "stopped"
    assert AttemptEnd.model_validate_json((tmp_path / "termination").read_text()) == end
    assert server.lines[0, "launch"][0].endswith("stop requested: SIGTERM")
    assert server.lines[0, "launch"] == directory.attempt(1).launch_log.read_text().splitlines()
    # A second start of the same attempt has nothing more to say.
    lines = {name: list(lines) for name, lines in server.lines.items() if name != (0, "launch")}
    process = start_attempt(directory, 1, "--push-target", str(mounted / "push.json"))
    assert process.wait(PATIENCE_SECONDS) == 75
    assert {name: lines for name, lines in server.lines.items() if name != (0, "launch")} == lines


def start_endless(tmp_path: Path, mounted: Path, server: LineServer) -> tuple[RunDirectory, subprocess.Popen[bytes]]:
    """Start attempt 1 of a run without an end, and wait until it has reported a step."""
    document = write_document(mounted, run={**RUN, "epochs": 1000})
    directory = make_run(tmp_path / "run")
    process = start_attempt(directory, 1, "--document", str(document), "--push-target", str(mounted / "push.json"))
    wait_until(lambda: any('"kind":"step"' in line for line in server.lines.get((0, "metrics"), [])), process)
    return directory, process


@pytest.mark.slow
def test_an_attempt_that_the_service_has_given_up_stops_after_a_checkpoint(
    tmp_path: Path, mounted: Path, server: LineServer
):
    directory, process = start_endless(tmp_path, mounted, server)
    server.fault = 410
    assert process.wait(PATIENCE_SECONDS) == 75
    outcome = Outcome.read(directory.attempt(1).outcome)
    newest = find_newest_checkpoint(directory.checkpoints)
    assert outcome is not None
    assert newest is not None
    assert (outcome.state, outcome.step) == ("stopped", newest.step)


@pytest.mark.slow
def test_an_attempt_that_finds_an_earlier_one_at_work_leaves_it_alone(
    tmp_path: Path, mounted: Path, server: LineServer, monkeypatch: pytest.MonkeyPatch
):
    directory, process = start_endless(tmp_path, mounted, server)
    monkeypatch.setenv("DLRM_TERMINATION_LOG", str(tmp_path / "termination"))
    with serve_lines() as second_server:
        second_server.write_target(mounted / "second.json")
        second = start_attempt(directory, 2, "--push-target", str(mounted / "second.json"))
        assert second.wait(PATIENCE_SECONDS) == 1
        end = get_end(second_server)
    assert (end.outcome.state, end.outcome.reason) == ("failed", "run_in_use")
    assert f"{directory.path} is in use by process {process.pid}, attempt 1, since 20" in end.outcome.message
    assert AttemptEnd.model_validate_json((tmp_path / "termination").read_text()) == end
    # One of the same number says nothing: its word would hide that of the other one.
    same = start_attempt(directory, 1, "--push-target", str(mounted / "push.json"))
    assert same.wait(PATIENCE_SECONDS) == 1
    assert not directory.attempt(1).outcome.exists()
    assert (0, "outcome") not in server.lines
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 75
    end = get_end(server)
    assert end.outcome.state == "stopped"
    assert end.checkpoint is not None
    assert (end.checkpoint.step, end.model_path) == (end.outcome.step, None)


@pytest.mark.parametrize("document", [None, pytest.param("damaged.json", marks=pytest.mark.slow)])
def test_a_run_without_a_document_fails_as_bad_input_and_says_so(
    tmp_path: Path, mounted: Path, server: LineServer, document: str | None
):
    (mounted / "damaged.json").write_text("{")
    options = ["--document", str(mounted / document)] if document else []
    directory = make_run(tmp_path / "run")
    process = start_attempt(directory, 1, "--push-target", str(mounted / "push.json"), *options)
    assert process.wait(PATIENCE_SECONDS) == 64
    outcome = get_end(server).outcome
    assert (outcome.state, outcome.reason) == ("failed", "bad_input")
    assert outcome.message
    # A later attempt may be told a better one.
    assert not directory.spec.exists()


@pytest.mark.parametrize("content", [pytest.param(None, marks=pytest.mark.slow), '{"url": "http://127.0.0.1:1"}'])
def test_a_push_target_that_cannot_be_read_is_an_error_of_the_option(tmp_path: Path, content: str | None):
    target = tmp_path / "push.json"
    if content is not None:
        target.write_text(content)
    directory = make_run(tmp_path / "run")
    process = start_attempt(directory, 1, "--push-target", str(target))
    assert process.wait(PATIENCE_SECONDS) == 64
    assert f"--push-target {target}: " in (directory.path / "output").read_text()
    assert not directory.attempt(1).path.exists()


@pytest.mark.slow
def test_the_document_of_the_run_wins_over_the_one_that_is_named(tmp_path: Path, mounted: Path, server: LineServer):
    named = write_document(mounted, run={**RUN, "epochs": 1})
    directory = make_run(tmp_path / "run")
    run = {**RUN, "epochs": 2, "keep_checkpoints": 1}
    own = resolve(JobConfig.model_validate({**TINY, "resources": ONE_RANK, "run": run}))
    directory.spec.write_text(own.model_dump_json())
    process = start_attempt(directory, 1, "--document", str(named), "--push-target", str(mounted / "push.json"))
    assert process.wait(PATIENCE_SECONDS) == 0
    steps = [json.loads(line)["num_steps"] for line in server.lines[0, "metrics"] if '"kind":"step"' in line]
    assert set(steps) == {36}
    events = list_events(server)
    saved = [event.details["step"] for event in events if event.name == "checkpoint_saved"]
    removed = [step for event in events if event.name == "checkpoints_removed" for step in event.details["steps"]]
    kept = {int(path.name.removeprefix("step-")) for path in directory.checkpoints.iterdir()}
    assert set(saved) - set(removed) == kept
    model = next(event.details for event in events if event.name == "model_saved")
    end = get_end(server)
    assert end.checkpoint is not None
    assert (end.model_path, end.checkpoint.step) == (str(directory.model), max(kept))
    files = {path.relative_to(directory.model).as_posix() for path in directory.model.rglob("*") if path.is_file()}
    assert {file["name"] for file in model["files"]} == files
    assert model["path"] == str(directory.model)
    sizes = [(directory.model / name).stat().st_size for name in files]
    assert (model["num_files"], model["num_bytes"]) == (len(files), sum(sizes))


@pytest.mark.slow
def test_a_local_attempt_reports_what_it_did_before(tmp_path: Path, server: LineServer):
    directory = make_run(tmp_path / "run")
    directory.spec.write_text(resolve(JobConfig.model_validate({**TINY, "run": RUN})).model_dump_json())
    directory.attempt(1).create()
    server.write_target(directory.attempt(1).push_target, shares_files=True)
    process = start_attempt(directory, 1)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert set(server.lines) == {(0, "metrics"), (0, "events")}
    events = list_events(server)
    assert not {"model_saved", "checkpoints_removed"} & {event.name for event in events}
    saved = [event.details for event in events if event.name == "checkpoint_saved"]
    assert {tuple(details) for details in saved} == {("step", "num_bytes", "seconds", "stall_seconds")}


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False])
def test_every_node_pushes_the_reports_and_logs_of_its_own_ranks(
    bucket: Bucket, tmp_path: Path, mounted: Path, server: LineServer, *, is_shared: bool
):
    document = write_document(mounted, run=RUN, resources={"nodes": 2, "workers_per_node": 2})
    paths = [tmp_path / ("shared" if is_shared else f"node{node}") / "run" for node in (0, 1)]
    directories = [RunDirectory(path) for path in paths]
    address = f"127.0.0.1:{find_free_port()}"
    processes = []
    for node, directory in enumerate(directories):
        directory.path.mkdir(parents=True, exist_ok=True)
        options = ["--node-rank", str(node), "--rendezvous", address, "--push-target", str(mounted / "push.json")]
        options += ["--document", str(document)] if node == 0 else []
        options += [] if is_shared else ["--run-store", STORE]
        processes.append(start_attempt(directory, 1, *options))
    assert [process.wait(PATIENCE_SECONDS) for process in processes] == [0, 0]
    for rank in range(4):
        attempt = directories[rank // 2].attempt(1)
        for stream in ("metrics", "events"):
            path = attempt.spool_file(rank, stream)
            written = path.read_text().splitlines() if path.exists() else []
            assert server.lines.get((rank, stream), []) == written
        assert server.lines.get((rank, "log"), []) == attempt.rank_log(rank).read_text().splitlines()
    assert server.lines[0, "launch"] == directories[0].attempt(1).launch_log.read_text().splitlines()
    assert server.lines[2, "launch"] == directories[1].attempt(1).node_log(1).read_text().splitlines()
    assert {rank for rank, stream in server.lines if stream == "launch"} == {0, 2}
    assert get_end(server).outcome == Outcome.read(directories[0].attempt(1).outcome)
    details = [event.details for event in list_events(server) if "world_size" in event.details]
    assert {one["world_size"] for one in details} == {4}
    if not is_shared:
        assert {one["path"].split("/checkpoints/")[0] for one in details} == {f"{STORE}/run"}
