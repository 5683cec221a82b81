"""Limits on what one sender takes: turns of threads, shares of units, and rates of requests."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from service.http.limits import Shares, TokenBuckets, Turns
from service.http.problems import ProblemError
from tests.patience import PATIENCE_SECONDS


class Work:
    """Calls that stay in their thread until they are let go, in the order in which they began."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.begun: list[str] = []
        self._gates: dict[str, threading.Event] = {}

    def start(self, name: str) -> "asyncio.Task[None]":
        """Start a call of the sender that is the first letter of its name."""
        self._gates[name] = threading.Event()
        return asyncio.create_task(self.turns.run(name[0], self._work, name))

    async def wait_for(self, *names: str) -> None:
        """Wait until these calls have begun, and check that no others have."""
        while len(self.begun) < len(names):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert self.begun == list(names)

    def finish(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()

    def _work(self, name: str) -> None:
        self.begun.append(name)
        self._gates[name].wait()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_one_sender_leaves_a_thread_to_the_others() -> None:
    async def submit() -> None:
        work = Work(Turns("work", 2, share=1, max_waiting=10, waiting_share=5))
        tasks = [work.start("a1"), work.start("a2")]
        await work.wait_for("a1")
        tasks.append(work.start("b1"))
        await work.wait_for("a1", "b1")
        work.finish("a1", "a2", "b1")
        await asyncio.gather(*tasks)
        assert work.begun == ["a1", "b1", "a2"]

    run(submit())


def test_who_has_had_no_turn_comes_before_those_who_have() -> None:
    async def submit() -> None:
        work = Work(Turns("work", 2, share=1, max_waiting=10, waiting_share=5))
        # One after another: two threads that start at the same time begin in any order.
        tasks = [work.start("a1")]
        await work.wait_for("a1")
        tasks.append(work.start("b1"))
        await work.wait_for("a1", "b1")
        tasks += [work.start("a2"), work.start("b2")]
        tasks.append(work.start("c1"))
        await asyncio.sleep(0)
        work.finish("a1")
        await work.wait_for("a1", "b1", "c1")
        work.finish("b1")
        await work.wait_for("a1", "b1", "c1", "a2")
        work.finish("c1")
        await work.wait_for("a1", "b1", "c1", "a2", "b2")
        work.finish("a2", "b2")
        await asyncio.gather(*tasks)

    run(submit())


def test_neither_one_sender_nor_all_together_may_wait_without_end() -> None:
    async def submit() -> None:
        work = Work(Turns("work", 1, share=1, max_waiting=3, waiting_share=2))
        tasks = [work.start("a1")]
        await work.wait_for("a1")
        tasks += [work.start("a2"), work.start("a3")]
        await asyncio.sleep(0)
        with pytest.raises(ProblemError, match="2 of your requests wait for work already") as raised:
            await work.start("a4")
        assert raised.value.status == 503
        tasks.append(work.start("b1"))
        await asyncio.sleep(0)
        with pytest.raises(ProblemError, match="3 requests wait for work already") as raised:
            await work.start("c1")
        assert raised.value.status == 503
        work.finish("a1", "a2", "a3", "b1")
        await asyncio.gather(*tasks)
        assert work.begun == ["a1", "b1", "a2", "a3"]

    run(submit())


def test_who_leaves_the_queue_holds_nobody_up() -> None:
    async def submit() -> None:
        work = Work(Turns("work", 1, share=1, max_waiting=3, waiting_share=3))
        first, leaving, last = work.start("a1"), work.start("b1"), work.start("c1")
        await work.wait_for("a1")
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        work.finish("a1", "c1")
        await asyncio.gather(first, last)
        both = work.start("a2"), work.start("b2")
        await work.wait_for("a1", "c1", "a2")
        work.finish("a2")
        # Its turn comes and it leaves at the same time.
        await both[0]
        both[1].cancel()
        work.finish("b2")
        await asyncio.gather(both[1], return_exceptions=True)
        third = work.start("c2")
        work.finish("c2")
        await third

    run(submit())


def test_who_finds_nothing_free_waits_until_others_have_left_enough() -> None:
    async def take_all_and_then_more() -> list[str]:
        shares = Shares("bytes", 100, 50, wait_seconds=PATIENCE_SECONDS)
        order: list[str] = []

        async def take_more() -> None:
            async with shares.take(20, "third"):
                order.append("more")

        async with shares.take(50, "first"):
            async with shares.take(50, "second"):
                more = asyncio.create_task(take_more())
                await asyncio.sleep(0)
                order.append("all")
            await more
        return order

    assert asyncio.run(take_all_and_then_more()) == ["all", "more"]


def test_one_sender_cannot_take_the_shares_of_others() -> None:
    async def take_much() -> None:
        shares = Shares("bytes", 100, 25, wait_seconds=0.0)
        async with shares.take(25, "first"):
            with pytest.raises(ProblemError, match="other requests have taken all bytes"):
                async with shares.take(1, "first"):
                    pass
            async with shares.take(25, "second"), shares.take(25, "third"), shares.take(25, "fourth"):
                with pytest.raises(ProblemError):
                    async with shares.take(1, "fifth"):
                        pass
                waiting = asyncio.create_task(shares.take(1, "fifth").__aenter__())
                with pytest.raises(ProblemError):
                    await waiting

    asyncio.run(take_much())


def test_who_waits_comes_before_who_comes_later() -> None:
    async def take_in_turn() -> list[int]:
        shares = Shares("slots", 1, 1, wait_seconds=PATIENCE_SECONDS)
        order: list[int] = []

        async def take(number: int) -> None:
            async with shares.take(1, str(number)):
                order.append(number)

        async with shares.take(1, "holder"):
            tasks = [asyncio.create_task(take(number)) for number in range(3)]
            await asyncio.sleep(0)
        await asyncio.gather(take(3), *tasks)
        return order

    assert asyncio.run(take_in_turn()) == [0, 1, 2, 3]


def test_a_bucket_fills_up_again_and_never_holds_more_than_its_burst() -> None:
    seconds = 0.0
    buckets = TokenBuckets(per_second=2.0, burst=4.0, clock=lambda: seconds)
    assert [buckets.take("a") for _ in range(5)] == [0.0] * 4 + [0.5]
    assert buckets.take("b") == 0.0
    seconds = 0.5
    assert [buckets.take("a") for _ in range(2)] == [0.0, 0.5]
    seconds = 1000.0
    assert [buckets.take("a") for _ in range(5)] == [0.0] * 4 + [0.5]


def test_buckets_that_nobody_has_used_for_longest_make_room_for_new_ones() -> None:
    buckets = TokenBuckets(per_second=0.001, burst=1.0, max_names=100, clock=lambda: 0.0)
    for number in range(10_000):
        assert buckets.take(f"name-{number}") == 0.0
        buckets.take("busy")
    assert len(buckets) == 100
    assert buckets.take("busy") > 0
