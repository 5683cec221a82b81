"""Lease of a run in a bucket: one launch at a time may write there.

pyarrow offers no conditional put, so that one object of a fixed name cannot keep two launches apart. Every launch
therefore puts an object of its own and lists them all: since stores show what was put before, of two launches at least
one sees the other, and whoever sees another one withdraws. Ages are compared by the clock of the store alone.
"""

import json
import logging
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from dlrm.data.raw.stores import StoreError
from dlrm.run_store.layout import LEASE
from dlrm.run_store.objects import QUICK_LIMITS, ObjectStore, RequestError, RequestLimits
from hostinfo.process_identity import ProcessIdentity

log = logging.getLogger(__name__)


class LeaseHeldError(Exception):
    """Error of a run in which another launch works; the message names it."""


class LeaseLostError(Exception):
    """Error of a launch whose lease another one has taken over; the message names it."""


@dataclass(frozen=True)
class LeaseTimes:
    """Times of a lease, in seconds."""

    valid_seconds: float = 60.0
    """Time after which a lease may be taken over if it was not renewed."""
    renew_seconds: float = 10.0
    margin_seconds: float = 10.0
    """Time before the end of the lease from which on its holder writes no more: clocks of stores count whole seconds,
    and a request may be on its way."""
    retry_seconds: float = 1.5


@dataclass(frozen=True)
class Holder:
    """A launch, as its lease describes it."""

    host: str
    process: ProcessIdentity
    time: float
    """Time at which it took the lease, in seconds since the epoch, by its own clock."""

    @classmethod
    def of_self(cls) -> "Holder":
        return cls(socket.gethostname(), ProcessIdentity.of_self(), time.time())

    @classmethod
    def parse(cls, content: bytes) -> "Holder":
        """Read what `to_bytes` has written; a holder without a name if it was not."""
        with suppress(ValueError, TypeError, KeyError):
            found = json.loads(content)
            return cls(str(found["host"]), ProcessIdentity(**found["process"]), float(found["time"]))
        return cls("an unknown machine", ProcessIdentity("", 0, 0), 0.0)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def describe(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.time))
        return f"process {self.process.pid} on {self.host}, since {since}"


class RunLease:
    """The lease of one launch on one run."""

    def __init__(
        self,
        uri: str,
        times: LeaseTimes | None = None,
        limits: RequestLimits = QUICK_LIMITS,
        holder: Holder | None = None,
    ) -> None:
        """Open the store of the run `uri`. holder: this process where it is None. Raises StoreError."""
        self._store = ObjectStore(uri, limits)
        self._times = times or LeaseTimes()
        self._holder = holder or Holder.of_self()
        self._name = ""
        self._renewed_at = 0.0
        self.lost: str | None = None
        """Sentence about who has taken the lease over; None as long as nobody has."""
        self.num_lapses = 0
        """Number of times that the lease was renewed too late: meanwhile, another launch may have come and gone."""
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def acquire(self, on_wait: Callable[[str], None] = log.info) -> None:
        """Take the lease, and renew it from now on.

        Waits where a launch that has died still holds it: at most until its time is over. on_wait: called with a
        sentence once there is something to wait for. Raises LeaseHeldError if another launch renews it, RequestError
        and StoreError.
        """
        seen: dict[str, float] = {}
        has_told = False
        while True:
            others = self._claim()
            if not others:
                self._thread.start()
                return
            for name, (holder, mtime) in others.items():
                if seen.setdefault(name, mtime) != mtime:
                    message = f"{self._store.uri} is in use by {holder.describe()}: stop that launch, or wait for it"
                    raise LeaseHeldError(message)
            if not has_told:
                has_told = True
                holder = next(iter(others.values()))[0]
                on_wait(f"{holder.describe()} holds {self._store.uri}: waiting to see whether it is still there")
            # Not in step with another one that waits too.
            time.sleep(self._times.retry_seconds * random.uniform(0.7, 1.3))

    def require(self) -> None:
        """Check that this launch may write now.

        Raises LeaseLostError if another one has the lease, and RequestError if it could not be renewed in time
        and may be renewed later.
        """
        if self.lost is not None:
            raise LeaseLostError(self.lost)
        if self._has_lapsed():
            raise RequestError(f"{self._store.uri}: the lease could not be renewed in time")

    def release(self) -> None:
        """Give the lease up; where the store cannot be reached, its time ends by itself."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._times.renew_seconds)
        if self._name:
            with suppress(RequestError, StoreError):
                self._store.remove(self._name)

    def _claim(self) -> dict[str, tuple[Holder, float]]:
        """Put a claim, and return the living others by name, each with the time of its last renewal.

        The claim stays if there are none.
        """
        self._name = f"{LEASE}/{secrets.token_hex(8)}.json"
        begun_at = _read_clock()
        self._store.put_bytes(self._name, self._holder.to_bytes())
        others = self._list_others()
        if others:
            self._store.remove(self._name)
        else:
            self._renewed_at = begun_at
        return others

    def _list_others(self) -> dict[str, tuple[Holder, float]]:
        """List the living claims of others; those whose process or time has ended are removed."""
        infos = self._store.list_below(LEASE)
        own = infos.pop(self._name, None)
        if own is None:
            raise RequestError(f"{self._store.uri}/{self._name} has vanished")
        others: dict[str, tuple[Holder, float]] = {}
        for name, info in infos.items():
            content = self._store.read_bytes(name)
            if content is None:
                continue
            holder = Holder.parse(content)
            # An own one was put by a request whose answer was lost.
            is_own = holder == self._holder
            is_over = own.mtime - info.mtime > self._times.valid_seconds
            if is_own or is_over or holder.process.is_known_to_have_ended():
                log.info("the lease of %s has ended", holder.describe())
                self._store.remove(name)
            else:
                others[name] = holder, info.mtime
        return others

    def _has_lapsed(self) -> bool:
        return _read_clock() - self._renewed_at > self._times.valid_seconds - self._times.margin_seconds

    def _keep(self) -> None:
        while not self._is_closing.wait(self._times.renew_seconds) and self.lost is None:
            try:
                self._renew()
            except (RequestError, StoreError, OSError) as error:
                log.warning("the lease cannot be renewed now: %s", error)

    def _renew(self) -> None:
        begun_at = _read_clock()
        self._store.put_bytes(self._name, self._holder.to_bytes())
        # Others may be just looking, and withdraw; but once its time was over, one of them may have taken it. The clock
        # is read after the request, which may itself have taken that long.
        if self._has_lapsed():
            if others := self._list_others():
                holder = next(iter(others.values()))[0]
                self.lost = f"{self._store.uri} was taken over by {holder.describe()}"
                self._store.remove(self._name)
                return
            self.num_lapses += 1
        self._renewed_at = begun_at


def _read_clock() -> float:
    """Return a time that only grows, and that also counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
