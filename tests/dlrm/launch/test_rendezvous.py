"""How the launch processes of several nodes meet, here in one process."""

import logging
import threading
from pathlib import Path

import pytest

from dlrm.launch.nodes import rendezvous
from dlrm.launch.nodes.group import NodeGroup
from dlrm.launch.nodes.rendezvous import RendezvousStoppedError, host_rendezvous, join_rendezvous, make_announcement
from dlrm.launch.nodes.state import NodeState
from dlrm.record import RunDirectory
from hostinfo.node_place import NodePlace
from tests.e2e.launching import find_free_port
from tests.patience import wait_until


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.attempt(1).create()
    return directory


def never() -> bool:
    return False


def test_a_node_that_does_not_reach_node_0_says_so_at_once(
    directory: RunDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rendezvous, "BEAT_SECONDS", 0.01)
    port, num_looks = find_free_port(), 0

    def is_stopped() -> bool:
        nonlocal num_looks
        num_looks += 1
        return num_looks > 5

    with caplog.at_level(logging.INFO), pytest.raises(RendezvousStoppedError):
        join_rendezvous(NodePlace(1, "127.0.0.1", port), directory, is_stopped)
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert warning.startswith(f"--rendezvous 127.0.0.1:{port} cannot be reached yet: Connection refused")
    assert "trying for 15 minutes" in warning


def test_node_0_tells_which_nodes_are_missing_until_all_are_there(directory: RunDirectory):
    place, told = NodePlace(0, "127.0.0.1", find_free_port()), []
    announcement = make_announcement(directory, 1, 2, 45.0)

    def join() -> None:
        group = join_rendezvous(NodePlace(1, place.host, place.port), directory, stopping.is_set)
        group.leave()

    stopping = threading.Event()
    other = threading.Thread(target=join)
    other.start()
    group = host_rendezvous(place, announcement, [2], never, told.append)
    group.update(announcement=announcement.model_copy(update={"members": [0, 1]}))
    other.join()
    group.leave()
    assert told in (
        [f"waiting at {place.host}:{place.port} for 2 nodes: 1 there, missing: node 1", "all 2 nodes are there"],
        ["all 2 nodes are there"],
    )


def test_an_attempt_that_can_have_fewer_nodes_begins_without_those_that_do_not_come(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rendezvous, "LAST_CALL_SECONDS", 0.5)
    place, told = NodePlace(0, "127.0.0.1", find_free_port()), []
    group = host_rendezvous(place, make_announcement(directory, 1, 12, 45.0), range(1, 13), never, told.append)
    assert set(group.states) == {0}
    assert rendezvous.choose_members(group.states, range(1, 13)) == [0]
    group.leave()
    missing = "1, 2, 3, 4, 5, 6, 7, 8 …"
    assert told == [f"waiting at {place.host}:{place.port} for 12 nodes: 1 there, missing: node {missing}"]


def test_a_second_process_cannot_join_as_the_same_node():
    port = find_free_port()
    groups = [NodeGroup(NodePlace(node, "127.0.0.1", port), NodeState(host="here"), 2) for node in (0, 1, 1)]
    for group in groups:
        group.start()
    _, first, second = groups
    first.join()
    wait_until(lambda: 1 in groups[0].states)
    second.join()
    wait_until(lambda: second.broken is not None)
    assert second.broken == "another process has joined as node 1 already"
    assert first.broken is None
    for group in reversed(groups):
        group.leave()
