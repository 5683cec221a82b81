"""Limits on what one sender takes from the others: threads, turns of threads, shares of memory, rates of requests."""

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from starlette.datastructures import Headers

from service.http.problems import too_busy

MAX_NAMES = 10_000
"""Names that are remembered at a time, so that they take bounded memory."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Value = TypeVar("Value")


class _PerLoop(Generic[Value]):
    """Value that each event loop has for itself."""

    def __init__(self, name: str, make: Callable[[], Value]) -> None:
        self._make = make
        self._variable: RunVar[Value] = RunVar(name)

    def get(self) -> Value:
        try:
            return self._variable.get()
        except LookupError:
            value = self._make()
            self._variable.set(value)
            return value


class Threads:
    """Threads for one kind of work, so that no kind waits for threads that another one holds."""

    def __init__(self, work: str, number: int) -> None:
        self._limiter = _PerLoop(work, lambda: CapacityLimiter(number))

    async def run(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Run `function` in a thread of this kind, once one is free; first come, first served."""
        return await to_thread.run_sync(partial(function, *args, **kwargs), limiter=self._limiter.get())


CONTROL = Threads("control", 8)
"""Threads of all endpoints that name no others."""
LISTS = Threads("lists", 2)
"""Threads that read lists of jobs and events: 200 of them at once would hold all threads of control for seconds."""
FILES = Threads("files", 2)
"""Threads that read artifacts, a part at a time, so that a slow client holds none."""
SIGN_INS = Threads("sign-ins", 2)
"""Threads of sign-ins, which anybody may try: they hold up each other alone."""
INGEST = Threads("ingest", 1)
"""Thread that stores the reports of ranks: the interpreter runs one thread at a time anyway."""
PLANS = Threads("plans", 8)
"""Threads that wait for plans: more than may wait, so that further requests are refused at once."""
MONITORING = Threads("monitoring", 1)
"""Thread of the endpoints for monitoring, which anybody may call."""


@dataclass
class _Queues:
    running: Counter[str] = field(default_factory=Counter[str])
    """Number of calls of each sender that have a thread."""
    waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict[str, deque[asyncio.Future[None]]])
    """Calls of each sender that wait for one, oldest first."""
    last_turns: dict[str, int] = field(default_factory=dict[str, int])
    """Number of the last turn of each sender that has calls here."""
    num_turns: int = 0


class Turns:
    """Threads for work that may take long, by turns of its senders. Each event loop has its own.

    The next free thread is for the sender whose last turn was longest ago. A new sender waits for the end of one call
    at most, and for the first calls of others that came before, however much they have sent.
    """

    def __init__(self, work: str, number: int, *, share: int, max_waiting: int, waiting_share: int) -> None:
        """Let `max_waiting` calls wait. One sender may have `share` of the threads and `waiting_share` of them."""
        self._work = work
        self._number = number
        self._share = share
        self._max_waiting = max_waiting
        self._waiting_share = waiting_share
        self._threads = Threads(work, number)
        self._queues = _PerLoop(f"turns of {work}", _Queues)

    async def run(
        self, sender: str, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Run `function` in a thread once it is the turn of `sender`.

        Raises ProblemError (503) if too many calls, or too many of this sender, wait already.
        """
        queues = self._queues.get()
        await self._wait_for_turn(queues, sender)
        try:
            return await self._threads.run(function, *args, **kwargs)
        finally:
            self._end_turn(queues, sender)

    async def _wait_for_turn(self, queues: _Queues, sender: str) -> None:
        if self._is_free(queues, sender):
            _begin_turn(queues, sender)
            return
        self._check_room(queues, sender)
        turn = asyncio.get_running_loop().create_future()
        queues.waiting.setdefault(sender, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                _leave(queues, sender, turn)
            else:
                # The turn came at the same time.
                self._end_turn(queues, sender)
            raise

    def _check_room(self, queues: _Queues, sender: str) -> None:
        """Raise ProblemError (503) if no further call of `sender` may wait."""
        if len(queues.waiting.get(sender, ())) >= self._waiting_share:
            raise too_busy(f"{self._waiting_share} of your requests wait for {self._work} already; try again soon")
        if sum(map(len, queues.waiting.values())) >= self._max_waiting:
            raise too_busy(f"{self._max_waiting} requests wait for {self._work} already; try again soon")

    def _end_turn(self, queues: _Queues, sender: str) -> None:
        """Give the thread of `sender` to whoever is next."""
        queues.running[sender] -= 1
        while waiting := [other for other in queues.waiting if self._is_free(queues, other)]:
            following = min(waiting, key=lambda other: queues.last_turns.get(other, -1))
            turn = queues.waiting[following][0]
            _leave(queues, following, turn)
            if not turn.cancelled():
                _begin_turn(queues, following)
                turn.set_result(None)
        if not queues.running[sender]:
            del queues.running[sender]
        _forget_turns(queues, sender)

    def _is_free(self, queues: _Queues, sender: str) -> bool:
        return queues.running.total() < self._number and queues.running[sender] < self._share


def _begin_turn(queues: _Queues, sender: str) -> None:
    queues.running[sender] += 1
    queues.num_turns += 1
    queues.last_turns[sender] = queues.num_turns


def _leave(queues: _Queues, sender: str, turn: "asyncio.Future[None]") -> None:
    """Remove a call from those that wait, if it is among them."""
    waiting = queues.waiting.get(sender, deque())
    with suppress(ValueError):
        waiting.remove(turn)
    if not waiting:
        queues.waiting.pop(sender, None)
        _forget_turns(queues, sender)


def _forget_turns(queues: _Queues, sender: str) -> None:
    """Forget when a sender had its last turn, if it has no calls here any more."""
    if not queues.running[sender] and sender not in queues.waiting:
        queues.last_turns.pop(sender, None)


CURVES = Turns("curves", 1, share=1, max_waiting=500, waiting_share=100)
"""Thread that reads curves, by turns of their readers: a second one would take the second of two cores from others."""
LOGS = Turns("logs", 1, share=1, max_waiting=500, waiting_share=100)
"""Thread that reads logs, by turns of their readers, so that none waits for a long curve."""


@dataclass
class _Taken:
    units: Counter[str] = field(default_factory=Counter[str])
    """Units that each sender has taken."""
    num_waiting: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class Shares:
    """Number of units, such as bytes of memory, that requests in progress share. Each event loop has its own.

    One sender may take a part of them, so that a slow one does not keep others out.
    """

    def __init__(self, name: str, total: int, share: int, wait_seconds: float) -> None:
        """Let a request wait up to `wait_seconds` until there are enough units.

        name: the units, for the message to those who wait too long. share: number of units that one sender may take.
        """
        self._name = name
        self._total = total
        self._share = share
        self._wait_seconds = wait_seconds
        self._taken = _PerLoop(f"shares of {name}", _Taken)

    @asynccontextmanager
    async def take(self, number: int, sender: str) -> AsyncGenerator[None]:
        """Take `number` units for `sender` until the block ends; waits while they are taken.

        Raises ProblemError (503) if the wait is too long.
        """
        taken = self._taken.get()
        if taken.num_waiting or not self._are_free(taken, number, sender):
            await self._wait(taken, number, sender)
        taken.units[sender] += number
        try:
            yield
        finally:
            taken.units[sender] -= number
            if not taken.units[sender]:
                del taken.units[sender]
            if taken.num_waiting:
                async with taken.changed:
                    taken.changed.notify_all()

    async def _wait(self, taken: _Taken, number: int, sender: str) -> None:
        """Wait until units are free. Nothing else runs between that and the return."""
        taken.num_waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds), taken.changed:
                await taken.changed.wait_for(lambda: self._are_free(taken, number, sender))
        except TimeoutError:
            raise too_busy(f"other requests have taken all {self._name}; try again soon") from None
        finally:
            taken.num_waiting -= 1

    def _are_free(self, taken: _Taken, number: int, sender: str) -> bool:
        return taken.units[sender] + number <= self._share and taken.units.total() + number <= self._total


class TokenBuckets:
    """One bucket of tokens for each name. A bucket fills at a rate up to its burst; each request takes one token.

    Of too many buckets those that were not used for longest are dropped.
    """

    def __init__(
        self,
        per_second: float,
        burst: float,
        max_names: int = MAX_NAMES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fill every bucket with `per_second` tokens a second, up to `burst` but at least one."""
        self._per_second = per_second
        self._burst = max(burst, 1.0)
        self._max_names = max_names
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens of each name at a time, in the order of their last use."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str) -> float:
        """Take a token, and return 0; if there is none, return the seconds until there is one."""
        wait_seconds = self.get_wait_seconds(name)
        if wait_seconds > 0.0:
            return wait_seconds
        self._buckets[name] = (self._count(name) - 1.0, self._clock())
        _limit_names(self._buckets, name, self._max_names)
        return 0.0

    def get_wait_seconds(self, name: str) -> float:
        """Return the seconds until there is a token; 0 if there is one."""
        if name in self._buckets:
            self._buckets.move_to_end(name)
        return max(0.0, 1.0 - self._count(name)) / self._per_second

    def _count(self, name: str) -> float:
        tokens, at = self._buckets.get(name, (self._burst, self._clock()))
        return min(self._burst, tokens + (self._clock() - at) * self._per_second)


class Suspects:
    """Network addresses from which many wrong credentials came lately.

    Credentials that were right before stay free of suspicion: whoever guesses must not lock out others at his address.
    """

    def __init__(self, failures_per_minute: float) -> None:
        """Begin to suspect an address after `failures_per_minute` failures; that many are forgotten in a minute."""
        self._failures = TokenBuckets(failures_per_minute / 60.0, failures_per_minute)
        self._right: OrderedDict[str, None] = OrderedDict()
        """Digests of credentials that were right, in the order of their last use."""

    def get_wait_seconds(self, address: str, credentials: str | None) -> float:
        """Return the seconds for which `address` is suspected; 0 if it or the credentials are not.

        credentials: what `digest_credentials` returned.
        """
        return 0.0 if credentials in self._right else self._failures.get_wait_seconds(address)

    def note_failure(self, address: str, credentials: str | None) -> None:
        """Count credentials that were wrong."""
        self._failures.take(address)
        if credentials is not None:
            self._right.pop(credentials, None)

    def note_success(self, credentials: str) -> None:
        """Remember credentials that were right."""
        self._right[credentials] = None
        _limit_names(self._right, credentials, MAX_NAMES)


def digest_credentials(headers: Headers) -> str | None:
    """Compute a digest of the credentials of a request; None if it has none."""
    credentials = headers.get("authorization", "") + "\n" + headers.get("cookie", "")
    return hashlib.sha256(credentials.encode()).hexdigest() if credentials != "\n" else None


def _limit_names(used: "OrderedDict[str, Value]", name: str, max_names: int) -> None:
    """Note that `name` was used last. If there are too many names, drop the one not used for longest."""
    used.move_to_end(name)
    if len(used) > max_names:
        used.popitem(last=False)
