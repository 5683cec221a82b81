"""Slots for large answers, so that few of them are in memory at a time."""

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Depends, Request

from service.http.gate import get_sender_id
from service.http.shares import Shares

WAIT_SECONDS = 30.0
"""Longest time that a request waits for a slot."""


def need_slot(name: str, total: int, share: int) -> Any:
    """Make the dependency of endpoints that need one of `total` slots until their answer has been sent.

    name: the slots, for the message to those who wait too long. share: number of slots that one sender may have.
    """
    slots = Shares(name, total, share, WAIT_SECONDS)

    async def take_slot(request: Request) -> AsyncGenerator[None]:
        async with slots.take(1, get_sender_id(request.scope)):
            yield

    return Depends(take_slot)
