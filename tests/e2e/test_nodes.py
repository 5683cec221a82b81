"""An attempt on several nodes: launch processes that meet over a real socket, and what they do when one is lost.

All nodes are this machine, with one run directory; nothing but the options tells them apart.
"""

import signal
from pathlib import Path

import pytest

from dlrm.config import JobConfig, ResolvedJob, resolve
from dlrm.record import EndReason, RunDirectory, read_rank_ends
from tests.e2e.launching import (
    TINY,
    Nodes,
    ended,
    find_free_port,
    ranks_of,
    read_losses,
    read_steps,
    start,
    start_attempt,
    start_node_attempt,
    start_nodes,
)
from tests.patience import PATIENCE_SECONDS, wait_until

ENDLESS = {"epochs": 1000, "eval_every_fraction": 1.0, "yardsticks": "none", "peer_timeout_seconds": 8.0}


def wait_for_steps(nodes: Nodes, num_steps: int) -> None:
    wait_until(lambda: len(read_losses(nodes.directory)) >= num_steps, nodes.processes[0])


@pytest.mark.slow
def test_ranks_on_two_nodes_learn_what_ranks_on_one_learn(tmp_path: Path):
    alone, process = start(tmp_path / "alone")
    assert ended(alone, process)[0] == 0
    nodes = start_nodes(tmp_path / "nodes", num_nodes=2, workers=1)
    codes, outcome = nodes.wait()
    assert (codes, outcome.state) == ([0, 0], "succeeded")
    losses = read_losses(nodes.directory)
    assert len(losses) >= 15
    assert losses == pytest.approx(read_losses(alone), abs=1e-5)
    assert (nodes.directory.model / "model.safetensors").exists()


@pytest.mark.slow
def test_a_stop_of_one_node_stops_all_at_one_step(tmp_path: Path):
    nodes = start_nodes(tmp_path / "run", num_nodes=2, workers=1, run={**ENDLESS, "epochs": 8})
    wait_for_steps(nodes, 3)
    nodes.processes[1].send_signal(signal.SIGTERM)
    codes, outcome = nodes.wait()
    assert (codes, outcome.state, outcome.reason) == ([75, 75], "stopped", EndReason.STOP_REQUESTED)
    assert [path.name for path in nodes.directory.checkpoints.iterdir()] == [f"step-{outcome.step:08d}"]

    codes, outcome = start_node_attempt(nodes.directory, 2, number=2).wait(attempt=2)
    assert (codes, outcome.state) == ([0, 0], "succeeded")


@pytest.mark.slow
def test_a_stop_while_the_nodes_meet_ends_them_all_without_an_error(tmp_path: Path):
    # The third one never comes, so that the others are still meeting.
    nodes = start_nodes(tmp_path / "run", num_nodes=3, workers=1, run=ENDLESS, batch={"global_size": 2046}, absent=1)
    wait_until(lambda: "has joined" in (nodes.directory.path / "output").read_text(), nodes.processes[1])
    nodes.processes[1].send_signal(signal.SIGTERM)
    codes, outcome = nodes.wait()
    assert codes == [75, 75]
    assert outcome.state == "stopped"


@pytest.mark.slow
def test_a_rank_that_is_stopped_ends_the_attempt_and_is_named(tmp_path: Path):
    directory, process = start(tmp_path / "run", run=ENDLESS)
    wait_until(lambda: len(read_losses(directory)) >= 2, process)
    victim = ranks_of(process)[1]
    victim.send_signal(signal.SIGSTOP)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason, outcome.rank) == (1, EndReason.PEER_SILENT, 1)
    assert f"rank 1 (process {victim.pid}) gave no sign of life for" in outcome.message
    assert "it is stopped, by SIGSTOP" in outcome.message
    assert outcome.reason.is_retried


@pytest.mark.slow
def test_a_stopped_rank_of_another_node_is_named_with_its_node(tmp_path: Path):
    nodes = start_nodes(tmp_path / "run", num_nodes=2, workers=2, run=ENDLESS)
    wait_for_steps(nodes, 2)
    ranks_of(nodes.processes[1])[3].send_signal(signal.SIGSTOP)
    codes, outcome = nodes.wait()
    assert (codes, outcome.reason, outcome.rank) == ([1, 1], EndReason.PEER_SILENT, 3)
    assert outcome.message.startswith("node 1 (")
    assert "rank 3" in outcome.message


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1])
def test_a_node_that_is_killed_ends_the_others_which_name_it(tmp_path: Path, node: int):
    nodes = start_nodes(tmp_path / "run", num_nodes=2, workers=1, run=ENDLESS)
    wait_for_steps(nodes, 2)
    nodes.signal(node, signal.SIGKILL)
    codes, outcome = nodes.wait()
    assert codes[1 - node] == 1
    assert outcome.reason is EndReason.PEER_SILENT
    assert outcome.message.startswith(f"node {node} (")


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1])
def test_a_node_that_freezes_ends_the_others_and_itself_once_it_thaws(tmp_path: Path, node: int):
    nodes = start_nodes(tmp_path / "run", num_nodes=2, workers=1, run=ENDLESS)
    wait_for_steps(nodes, 2)
    nodes.signal(node, signal.SIGSTOP)
    assert nodes.processes[1 - node].wait() == 1
    nodes.signal(node, signal.SIGCONT)
    codes, outcome = nodes.wait()
    assert codes == [1, 1]
    assert outcome.reason is EndReason.PEER_SILENT
    assert outcome.message.startswith(f"node {node} (")


@pytest.mark.slow
def test_a_killed_rank_of_another_node_is_named_as_the_cause(tmp_path: Path):
    nodes = start_nodes(tmp_path / "run", num_nodes=2, workers=1, run=ENDLESS)
    wait_for_steps(nodes, 2)
    ranks_of(nodes.processes[1])[1].kill()
    codes, outcome = nodes.wait()
    assert (codes, outcome.reason) == ([1, 1], EndReason.WORKER_CRASHED)
    assert outcome.message.startswith("node 1 (")
    assert "rank 1 was killed by SIGKILL" in outcome.message
    assert 1 in [end.rank for end in read_rank_ends(nodes.directory.attempt(1).rank_ends)]


def test_a_job_of_several_nodes_is_not_started_on_one_nor_the_reverse(tmp_path: Path):
    directory, process = start(tmp_path / "several", resources={"nodes": 2, "workers_per_node": 1})
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert "resources.nodes: asks for 2 machines" in outcome.message
    assert "--node-rank I --rendezvous HOST:PORT" in outcome.message

    directory = RunDirectory(tmp_path / "one")
    directory.path.mkdir()
    directory.spec.write_text(resolve(JobConfig.model_validate(TINY)).model_dump_json())
    address = f"127.0.0.1:{find_free_port()}"
    process = start_attempt(directory, 1, "--node-rank", "0", "--rendezvous", address)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert "resources.nodes: is 1" in outcome.message


@pytest.mark.slow
def test_an_attempt_begins_with_the_nodes_that_are_there_and_the_next_one_with_all(
    tmp_path: Path,
):
    nodes = start_nodes(tmp_path / "run", 2, 1, resources={"nodes": {"min": 1, "max": 2}}, run={**ENDLESS, "epochs": 8})
    wait_for_steps(nodes, 3)
    assert read_world_size(nodes.directory) == 2
    nodes.signal(1, signal.SIGKILL)
    assert nodes.wait()[1].reason is EndReason.PEER_SILENT

    # One machine is enough, without a way to others too.
    process = start_attempt(nodes.directory, 2)
    wait_until(lambda: read_losses(nodes.directory, 2), process)
    assert read_world_size(nodes.directory) == 1
    process.send_signal(signal.SIGTERM)
    assert ended(nodes.directory, process, attempt=2)[0] == 75

    codes, outcome = start_node_attempt(nodes.directory, 2, 3).wait(attempt=3)
    assert (codes, outcome.state) == ([0, 0], "succeeded")
    assert read_world_size(nodes.directory) == 2
    losses = {report.step: report.loss for attempt in (1, 2, 3) for report in read_steps(nodes.directory, attempt)}
    alone, process = start(tmp_path / "alone", run={**ENDLESS, "epochs": 8})
    assert ended(alone, process)[0] == 0
    # How many steps one rank made depends on speed, and with it how sums round; a row too many changes a loss by more.
    assert [losses[step] for step in sorted(losses)] == pytest.approx(read_losses(alone), abs=1e-4)


def read_world_size(directory: RunDirectory) -> int:
    return ResolvedJob.model_validate_json(directory.spec.read_bytes()).job.resources.world_size


@pytest.mark.slow
def test_a_node_that_is_not_needed_leaves_alone_when_it_is_stopped(tmp_path: Path):
    """The batch is divided by 2 and by 4; of three nodes one is too many."""
    resources = {"nodes": {"min": 2, "max": 4}}
    nodes = start_nodes(tmp_path / "run", 4, 1, absent=1, resources=resources, run=ENDLESS)
    wait_for_steps(nodes, 1)
    assert "the attempt runs on nodes [0, 1]: this one waits" in (nodes.directory.path / "output").read_text()
    spare, num_steps = nodes.processes[2], len(read_losses(nodes.directory))
    spare.send_signal(signal.SIGTERM)
    assert spare.wait(timeout=PATIENCE_SECONDS) == 75
    wait_for_steps(nodes, num_steps + 20)
    nodes.processes[0].send_signal(signal.SIGTERM)
    codes, outcome = nodes.wait()
    assert (codes, outcome.reason) == ([75, 75, 75], EndReason.STOP_REQUESTED)
