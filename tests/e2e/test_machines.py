"""Nodes with networks of their own: what a cut of the network does, and chaos of ten blows of each kind."""

import random
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dlrm.record import EndReason, Outcome, RunDirectory
from tests.e2e.launching import Nodes, ended, ranks_of, read_losses, start, start_node_attempt, start_nodes
from tests.e2e.machines import Machines, make_machines
from tests.e2e.test_nodes import ENDLESS, wait_for_steps

NUM_BLOWS = 10
BLOWS = ("kill a rank", "kill", "freeze", "cut", "stop a rank")
RUN = {"epochs": 6, "eval_every_fraction": 0.5, "checkpoint_every_seconds": 0.5, "peer_timeout_seconds": 8.0}


@pytest.mark.slow
@pytest.mark.parametrize(("num_nodes", "workers"), [(2, 2), (3, 1)])
def test_any_number_of_nodes_learns_what_one_learns(tmp_path: Path, num_nodes: int, workers: int):
    batch = {"global_size": 2046 if num_nodes == 3 else 2048}
    with make_machines(num_nodes) as machines:
        nodes = start_nodes(tmp_path / "nodes", num_nodes, workers, machines, batch=batch)
        assert nodes.wait()[0] == [0] * num_nodes
    alone, process = start(tmp_path / "alone", batch=batch)
    assert ended(alone, process)[0] == 0
    losses = read_losses(nodes.directory)
    assert len(losses) >= 17
    assert losses == pytest.approx(read_losses(alone), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1])
def test_a_node_that_is_cut_off_ends_on_both_sides_of_the_cut(tmp_path: Path, node: int):
    with make_machines(2) as machines:
        nodes = start_nodes(tmp_path / "run", 2, 1, machines, run=ENDLESS)
        wait_for_steps(nodes, 2)
        machines.cut(node)
        codes, outcome = nodes.wait()
    assert codes == [1, 1]
    assert outcome.reason is EndReason.PEER_SILENT
    assert "the network is cut" in outcome.message


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("blow", BLOWS)
def test_ten_blows_at_random_moments_leave_the_model_of_a_run_without_any(tmp_path: Path, blow: str):
    """Also leaves the longest time from a blow to the end of the last node that could end, in `figure.txt`."""
    with make_machines(2) as machines:
        straight = start_nodes(tmp_path / "straight", 2, 1, machines, run=RUN)
        assert straight.wait()[0] == [0, 0]
        expected = read_model(straight.directory)
        chance = random.Random(BLOWS.index(blow))
        longest = 0.0
        for number in range(NUM_BLOWS):
            nodes = start_nodes(tmp_path / str(number), 2, 1, machines, run=RUN)
            wait_for_steps(nodes, chance.randrange(1, 60))
            longest = max(longest, strike(nodes, machines, blow, chance.randrange(2)))
            codes, outcome = start_node_attempt(nodes.directory, 2, 2, machines).wait(attempt=2)
            assert (codes, outcome.state) == ([0, 0], "succeeded"), outcome
            model = read_model(nodes.directory)
            assert model.keys() == expected.keys()
            assert all(torch.equal(model[name], expected[name]) for name in expected)
    figure = f"{blow}: {NUM_BLOWS} recovered, at most {longest:.1f} s until every node had ended\n"
    (tmp_path / "figure.txt").write_text(figure)


def strike(nodes: Nodes, machines: Machines, blow: str, node: int) -> float:
    """Strike a node, wait for the ends of both, and return the seconds that took those that could end."""
    began = time.monotonic()
    survivors = [0, 1]
    if blow == "kill a rank":
        for rank in ranks_of(nodes.processes[node]).values():
            rank.kill()
    elif blow == "stop a rank":
        for rank in ranks_of(nodes.processes[node]).values():
            rank.send_signal(signal.SIGSTOP)
    elif blow == "kill":
        nodes.signal(node, signal.SIGKILL)
        survivors = [1 - node]
    elif blow == "freeze":
        nodes.signal(node, signal.SIGSTOP)
        survivors = [1 - node]
    else:
        machines.cut(node)
    for survivor in survivors:
        nodes.processes[survivor].wait(timeout=120)
    seconds = time.monotonic() - began
    machines.heal(node)
    nodes.signal(node, signal.SIGCONT)
    for process in nodes.processes:
        process.wait(timeout=120)
    outcome = Outcome.read(nodes.directory.attempt(1).outcome)
    assert outcome is not None
    if outcome.state == "failed":
        assert outcome.reason in (EndReason.PEER_SILENT, EndReason.WORKER_CRASHED), outcome
    return seconds


def read_model(directory: RunDirectory) -> dict[str, torch.Tensor]:
    return load_file(directory.model / "model.safetensors")
