"""Shares of what requests take while they are in progress, such as memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from anyio.lowlevel import RunVar

from service.http.problems import too_busy


@dataclass
class _State:
    taken: Counter[str] = field(default_factory=Counter[str])
    """Units that each sender has taken."""
    num_waiting: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class Shares:
    """A number of units that requests share, in each event loop.

    One sender may take a part of them, so that nobody who is slow keeps others out.
    """

    def __init__(self, name: str, total: int, share: int, wait_seconds: float) -> None:
        """Let a request wait up to `wait_seconds` until there are enough units.

        name: the units, for the message to those who wait too long. share: number of units that one sender may take.
        """
        self._name = name
        self._total = total
        self._share = share
        self._wait_seconds = wait_seconds
        self._state: RunVar[_State] = RunVar(f"shares of {name}")

    @asynccontextmanager
    async def take(self, number: int, sender: str) -> AsyncGenerator[None]:
        """Take `number` units for `sender` until the block ends; waits while they are taken.

        Raises ProblemError (503) if the wait is too long.
        """
        state = self._get_state()
        if state.num_waiting or not self._are_free(state, number, sender):
            await self._wait(state, number, sender)
        state.taken[sender] += number
        try:
            yield
        finally:
            state.taken[sender] -= number
            if not state.taken[sender]:
                del state.taken[sender]
            if state.num_waiting:
                async with state.changed:
                    state.changed.notify_all()

    async def _wait(self, state: _State, number: int, sender: str) -> None:
        """Wait until units are free. Nothing else runs between that and the return."""
        state.num_waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds), state.changed:
                await state.changed.wait_for(lambda: self._are_free(state, number, sender))
        except TimeoutError:
            raise too_busy(f"other requests have taken all {self._name}; try again soon") from None
        finally:
            state.num_waiting -= 1

    def _are_free(self, state: _State, number: int, sender: str) -> bool:
        return state.taken[sender] + number <= self._share and state.taken.total() + number <= self._total

    def _get_state(self) -> _State:
        try:
            return self._state.get()
        except LookupError:
            state = _State()
            self._state.set(state)
            return state
