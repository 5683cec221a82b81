"""Overlap of the exchange with the computation, against a simulation of the slices of a step."""

import random
from dataclasses import replace

import pytest

from sharding.planner.cost_estimator import NO_TIME, StepTime
from sharding.planner.overlap import count_slices, hide_exchange, make_socket_request
from sharding.planner.planner import make_plan
from sharding.planner.report import make_plan_report
from tests.sharding.planner.plan_requests import make_request, make_tables, make_topology


def simulate(time: StepTime, num_slices: int) -> float:
    """Seconds of a step: two slices are pooled and sent ahead; each one that has trained sends its gradients, and the
    next one but one is pooled and sent. The network carries one transfer at a time, in the order of their starts.
    """
    pooling, forward, backward = (seconds / num_slices for seconds in (time.lookup, time.forward, time.backward))
    training = (time.dense + time.give_back) / num_slices
    now, network = 0.0, 0.0
    arrived: list[float] = []

    def send(seconds: float) -> float:
        nonlocal network
        network = max(now, network) + seconds
        return network

    for _ in range(min(2, num_slices)):
        now += pooling
        arrived.append(send(forward))
    for number in range(num_slices):
        now = max(now, arrived[number]) + training
        send(backward)
        if number + 2 < num_slices:
            now += pooling
            arrived.append(send(forward))
    return max(now, network) + time.update


@pytest.mark.parametrize("seed", range(50))
def test_a_step_is_as_long_as_its_slices_take_one_after_another(seed: int) -> None:
    draw = random.Random(seed)
    seconds = {name: draw.uniform(0.01, 1.0) for name in ("lookup", "forward", "dense", "give_back", "backward")}
    # As many numbers come back as were sent.
    time, num_slices = StepTime(**{**seconds, "backward": seconds["forward"]}, update=0.3), draw.randint(1, 12)
    estimated = hide_exchange(time, NO_TIME, num_slices)
    # Which slice waits for which is not followed one by one.
    assert estimated.seconds == pytest.approx(simulate(time, num_slices), rel=0.2)
    assert estimated.seconds <= time.seconds


def test_one_slice_hides_nothing() -> None:
    time = StepTime(lookup=1, forward=2, dense=3, give_back=0.5, backward=2, update=1)
    assert hide_exchange(time, NO_TIME, 1).seconds == pytest.approx(time.seconds)


def test_many_slices_leave_the_slower_of_network_and_computation() -> None:
    time = StepTime(ids=1, lookup=1, forward=5, dense=2, backward=5, update=1)
    assert hide_exchange(time, NO_TIME, 10_000).seconds == pytest.approx(11 + 1, rel=1e-3)
    fast = time._replace(ids=0.1, forward=0.5, backward=0.5)
    assert hide_exchange(fast, NO_TIME, 10_000).seconds == pytest.approx(3 + 1, rel=1e-3)


def test_cores_that_send_compute_nothing_meanwhile() -> None:
    time = StepTime(lookup=1, forward=1, dense=5, backward=1)
    sockets = StepTime(forward=0.5, backward=0.5)
    assert hide_exchange(time, sockets, 10_000).seconds == pytest.approx(7, rel=1e-3)


def test_dense_gradients_are_summed_during_the_update() -> None:
    time = StepTime(update=1, all_reduce=1.5)
    assert hide_exchange(time, NO_TIME, 1).all_reduce == pytest.approx(0.5)
    assert hide_exchange(time, StepTime(all_reduce=0.7), 1).all_reduce == pytest.approx(0.7)


def test_a_plan_over_the_network_of_cpus_says_what_ranks_wait_for() -> None:
    topology = replace(make_topology(2, 1), device="cpu", inter_node_bandwidth=1e8)
    request = make_request(make_tables([50_000] * 8), topology, plan="table_wise", global_size=400_000)
    plan = make_plan(request)
    terms = make_plan_report(request, plan).step.terms
    alone = make_plan_report(replace(request, topology=replace(topology, device="cuda")), plan).step.terms
    assert count_slices(request, plan.tables) > 1
    assert terms["ids"] == 0
    assert terms["backward"] == pytest.approx(alone["backward"] / count_slices(request, plan.tables))


def test_sockets_of_more_cores_send_faster() -> None:
    request = make_request(make_tables([1000]), make_topology(2, 2))
    cores = replace(request, topology=replace(request.topology, cores_per_rank=4))
    one, four = (make_socket_request(each).topology.inter_node_bandwidth for each in (request, cores))
    assert four == 4 * one == 2 * request.topology.intra_node_bandwidth
