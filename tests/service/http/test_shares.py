"""Shares of what requests take while they are in progress."""

import asyncio

import pytest

from service.http.limits import Shares
from service.http.problems import ProblemError
from tests.patience import PATIENCE_SECONDS


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
