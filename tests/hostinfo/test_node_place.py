"""The place of a machine among the nodes of a job, from options and from Slurm's variables."""

import pytest

from hostinfo.node_place import NodePlace, NodePlaceError, find_place, read_first_host

SLURM = {
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_NODEID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "gpu[07-09]",
    "SLURM_JOB_ID": "1234567",
}


def test_options_name_the_place_before_slurm_does():
    assert find_place(1, "node0:29500", SLURM) == NodePlace(1, "node0", 29500)
    assert find_place(0, "[fd00::1]:29500", {}) == NodePlace(0, "fd00::1", 29500)


def test_a_place_is_handed_on_as_the_options_it_came_from():
    for place in (NodePlace(1, "node0", 29500), NodePlace(0, "fd00::1", 29500)):
        _, node, _, rendezvous = place.options
        assert find_place(int(node), rendezvous, {}) == place


def test_without_options_and_without_slurm_there_is_one_node():
    assert find_place(None, None, {}) is None
    assert find_place(None, None, {**SLURM, "SLURM_STEP_NUM_NODES": "1"}) is None
    # The script of a batch job runs once, on the first of the nodes that it may start steps on.
    assert find_place(None, None, {"SLURM_NNODES": "3", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}) is None


def test_slurm_names_the_node_the_first_host_and_a_port_that_follows_from_the_job():
    place = find_place(None, None, SLURM)
    assert place == NodePlace(2, "gpu07", 20_000 + 1234567 % 10_000)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu07", "gpu07"),
        ("gpu07,login1", "gpu07"),
        ("gpu[07-09,12]", "gpu07"),
        ("gpu[12,07-09],login1", "gpu12"),
        ("rack[1-2]node[03-04]-ib,login1", "rack1node03-ib"),
        ("a-b.example.org", "a-b.example.org"),
    ],
)
def test_the_first_host_of_a_list_of_slurm_is_read(nodes: str, first: str):
    assert read_first_host(nodes) == first


@pytest.mark.parametrize(
    ("node_rank", "rendezvous", "message"),
    [
        (None, "node0:1", "--node-rank: is missing beside --rendezvous"),
        (1, None, "--rendezvous: is missing beside --node-rank"),
        (-1, "node0:1", "--node-rank: -1 is no number of a node"),
        (0, "node0", "--rendezvous: 'node0' is no address"),
        (0, ":29500", "--rendezvous: ':29500' is no address"),
        (0, "node0:0", "--rendezvous: 'node0:0' is no address"),
        (0, "node0:65536", "--rendezvous: 'node0:65536' is no address"),
        (0, "node0:http", "--rendezvous: 'node0:http' is no address"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_valid(node_rank: int | None, rendezvous: str | None, message: str):
    with pytest.raises(NodePlaceError) as raised:
        find_place(node_rank, rendezvous, {})
    assert str(raised.value).startswith(message)
    assert "(valid: " in str(raised.value)


def test_several_tasks_on_a_node_are_refused_with_the_option_for_one():
    with pytest.raises(NodePlaceError, match=r"SLURM_LOCALID.*--ntasks-per-node=1"):
        find_place(None, None, {**SLURM, "SLURM_LOCALID": "1"})
