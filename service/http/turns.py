"""Threads for work that may take long, which senders have by turns: none waits for all that another one sent."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from anyio.lowlevel import RunVar

from service.http.problems import too_busy
from service.http.threads import Parameters, Result, Threads


@dataclass
class _State:
    running: Counter[str] = field(default_factory=Counter[str])
    """Number of calls of each sender that have a thread."""
    waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict[str, deque[asyncio.Future[None]]])
    """Calls of each sender that wait for one, oldest first."""
    last_turns: dict[str, int] = field(default_factory=dict[str, int])
    """Number of the last turn of each sender that has calls here."""
    num_turns: int = 0


class Turns:
    """Threads for one kind of work. Each event loop has its own.

    The next free thread is for the sender whose last turn was longest ago. So who comes waits for the end of one call
    at most, and for the first calls of others that came before, however much these have sent.
    """

    def __init__(self, work: str, number: int, *, share: int, max_waiting: int, waiting_share: int) -> None:
        """Let `max_waiting` calls wait. One sender may have `share` of the threads and `waiting_share` of them."""
        self._work = work
        self._number = number
        self._share = share
        self._max_waiting = max_waiting
        self._waiting_share = waiting_share
        self._threads = Threads(work, number)
        self._state: RunVar[_State] = RunVar(f"turns of {work}")

    async def run(
        self, sender: str, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Run `function` in a thread once it is the turn of `sender`.

        Raises ProblemError (503) where too many calls, or too many of this sender, wait already.
        """
        state = self._get_state()
        await self._wait_for_turn(state, sender)
        try:
            return await self._threads.run(function, *args, **kwargs)
        finally:
            self._end_turn(state, sender)

    async def _wait_for_turn(self, state: _State, sender: str) -> None:
        if self._is_free(state, sender):
            _begin_turn(state, sender)
            return
        self._check_room(state, sender)
        turn = asyncio.get_running_loop().create_future()
        state.waiting.setdefault(sender, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                _leave(state, sender, turn)
            else:
                # The turn came at the same time.
                self._end_turn(state, sender)
            raise

    def _check_room(self, state: _State, sender: str) -> None:
        """Raise ProblemError (503) if no further call of `sender` may wait."""
        if len(state.waiting.get(sender, ())) >= self._waiting_share:
            raise too_busy(f"{self._waiting_share} of your requests wait for {self._work} already; try again soon")
        if sum(map(len, state.waiting.values())) >= self._max_waiting:
            raise too_busy(f"{self._max_waiting} requests wait for {self._work} already; try again soon")

    def _end_turn(self, state: _State, sender: str) -> None:
        """Give the thread of `sender` to whoever is next."""
        state.running[sender] -= 1
        while waiting := [other for other in state.waiting if self._is_free(state, other)]:
            following = min(waiting, key=lambda other: state.last_turns.get(other, -1))
            turn = state.waiting[following][0]
            _leave(state, following, turn)
            if not turn.cancelled():
                _begin_turn(state, following)
                turn.set_result(None)
        if not state.running[sender]:
            del state.running[sender]
        _forget_turns(state, sender)

    def _is_free(self, state: _State, sender: str) -> bool:
        return state.running.total() < self._number and state.running[sender] < self._share

    def _get_state(self) -> _State:
        try:
            return self._state.get()
        except LookupError:
            state = _State()
            self._state.set(state)
            return state


def _begin_turn(state: _State, sender: str) -> None:
    state.running[sender] += 1
    state.num_turns += 1
    state.last_turns[sender] = state.num_turns


def _leave(state: _State, sender: str, turn: "asyncio.Future[None]") -> None:
    """Remove a call from those that wait, where it is among them."""
    waiting = state.waiting.get(sender, deque())
    with suppress(ValueError):
        waiting.remove(turn)
    if not waiting:
        state.waiting.pop(sender, None)
        _forget_turns(state, sender)


def _forget_turns(state: _State, sender: str) -> None:
    """Forget when a sender had its last turn, if it has no calls here any more."""
    if not state.running[sender] and sender not in state.waiting:
        state.last_turns.pop(sender, None)
