"""The command on several machines: what it needs to be told, and what it says."""

import socket
import subprocess
from pathlib import Path

import pytest

from cli.local import nodes
from cli.local.errors import CommandError
from dlrm.config import JobConfig, resolve
from dlrm.record import RunDirectory
from hostinfo.node_place import NodePlace
from tests.bucket.server import Bucket
from tests.cli.commands.test_train import write_job
from tests.cli.conftest import Command, command, run
from tests.e2e.launching import find_free_port

TWO = {"nodes": 2, "workers_per_node": 1}


@pytest.mark.slow
def test_the_same_command_on_two_machines_trains_one_model(tmp_path: Path) -> None:
    job, directory = write_job(tmp_path, resources=TWO), tmp_path / "run"
    options = ["--run-directory", directory, "--rendezvous", f"127.0.0.1:{find_free_port()}"]
    other = subprocess.Popen(command("train", job, *options, "--node-rank", 1), stderr=subprocess.PIPE, text=True)
    assert other.stderr is not None
    assert other.stderr.readline().startswith("waiting for node 0 to create")
    first = run("train", job, *options, "--node-rank", 0)
    _, said = other.communicate()
    assert (first.returncode, other.returncode) == (0, 0), first.stderr + said
    assert (directory / "model" / "model.safetensors").exists()
    assert "succeeded: completed" in said

    # A machine that resumes what is done already has nothing to wait for.
    again = run("resume", directory, "--rendezvous", "127.0.0.1:1", "--node-rank", 1)
    assert (again.returncode, "the run has already succeeded" in again.stderr) == (0, True)


@pytest.mark.slow
def test_two_machines_without_a_common_directory_train_in_a_bucket_and_resume_from_it(
    bucket: Bucket, tmp_path: Path
) -> None:
    job = write_job(tmp_path, resources=TWO)

    def train(number: int, *options: object) -> list[tuple[int, str]]:
        """Train on both, and return the exit code and the last words of each."""
        address = f"127.0.0.1:{find_free_port()}"
        children = [
            subprocess.Popen(
                command(
                    *(*options, "--run-directory", tmp_path / f"try{number}" / f"node{node}" / "run"),
                    *("--rendezvous", address, "--node-rank", node),
                ),
                stderr=subprocess.PIPE,
                text=True,
            )
            for node in (0, 1)
        ]
        said = [child.communicate()[1] for child in children]
        return [(child.returncode, text) for child, text in zip(children, said, strict=True)]

    ended = train(1, "train", job, "--run-store", "s3://bucket/runs")
    assert [code for code, _ in ended] == [0, 0], ended
    # As if the attempt had been lost with both machines at its end.
    bucket.files.delete_file("bucket/runs/run/attempt-1/outcome.json")
    again = train(2, "resume", "s3://bucket/runs/run")
    assert [code for code, _ in again] == [0, 0], again
    weights = [tmp_path / f"try{number}" / "node0" / "run" / "model" / "model.safetensors" for number in (1, 2)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize(
    ("resources", "options", "message"),
    [
        (TWO, [], "resources.nodes: asks for 2 machines, but this is one"),
        (
            {},
            ["--node-rank", 0, "--rendezvous", "127.0.0.1:1"],
            "resources.nodes: is 1, but this machine is one of several",
        ),
        (TWO, ["--node-rank", 0, "--rendezvous", "127.0.0.1:1"], "--run-directory: is missing"),
        (TWO, ["--node-rank", 0], "--rendezvous: is missing beside --node-rank"),
        (TWO, ["--node-rank", 0, "--rendezvous", "here"], "--rendezvous: 'here' is no address"),
    ],
)
def test_what_is_missing_is_named_and_no_run_is_left(
    dlrm: Command, tmp_path: Path, resources: dict[str, int], options: list[object], message: str
) -> None:
    directory = tmp_path / "run"
    place = [] if message.startswith("--run-directory") else ["--run-directory", directory]
    ended = dlrm("train", *map(str, [write_job(tmp_path, resources=resources), *place, *options]))
    assert (ended.code, message in ended.err) == (2, True)
    assert not directory.exists()


@pytest.mark.slow
def test_a_machine_that_is_told_another_document_than_machine_0_warns_of_it(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    own = write_job(tmp_path / "own", resources=TWO, batch={"global_size": 2048})
    other = write_job(tmp_path / "other", resources=TWO, batch={"global_size": 4096})
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.spec.write_text(resolve(JobConfig.model_validate_json(own.read_text())).model_dump_json())
    options = ["--run-directory", directory.path, "--rendezvous", f"127.0.0.1:{find_free_port()}", "--node-rank", 1]
    firsts: list[str] = []
    for arguments in ([other], [own], [own, "--set", "run.seed=7"]):
        child = subprocess.Popen(command("train", *arguments, *options), stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        firsts.append(child.stderr.readline())
        child.terminate()
        child.communicate()
    warning = "warning: the document of node 0 counts, not this one: "
    assert firsts[0] == f"{warning}batch.global_size is 4096 here, and there 2048\n"
    assert "joining node 0" in firsts[1]
    assert firsts[2] == f"{warning}run.seed is 7 here, and there 0\n"


@pytest.mark.parametrize(
    ("listens", "message"),
    [
        (True, r"node 0 waits at 127\.0\.0\.1:\d+, but has another run directory"),
        (False, "node 0 has not created it within"),
    ],
)
def test_a_machine_that_never_sees_the_directory_of_machine_0_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens: bool, message: str
) -> None:
    for name, seconds in {
        "SHARED_SECONDS": 0.3,
        "APPEAR_SECONDS": 60.0 if listens else 0.3,
        "POLL_SECONDS": 0.1,
    }.items():
        monkeypatch.setattr(nodes, name, seconds)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if listens else find_free_port()
        place = NodePlace(1, "127.0.0.1", port)
        with pytest.raises(CommandError, match=message):
            nodes.run_other_node(tmp_path / "elsewhere", place, None, None, None)
