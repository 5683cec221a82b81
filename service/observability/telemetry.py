"""Metrics of the service for Prometheus. No label has a value that users choose, so that series stay few."""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

log = structlog.get_logger(__name__)

REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
START_BUCKETS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
WAIT_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0, 7 * 24 * 3600.0)
MAX_STARTS = 10_000
"""Attempts whose start is measured at a time."""


class _Reading(Collector):
    """Collector that reads metrics at a scrape, at most once in some seconds, however many scrape."""

    def __init__(self, read: Callable[[], Sequence[Metric]], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._last: tuple[float, Sequence[Metric]] | None = None

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry would otherwise read once at the start."""
        return []

    def collect(self) -> Iterable[Metric]:
        if self._last is None or time.monotonic() - self._last[0] >= self._seconds:
            try:
                self._last = time.monotonic(), self._read()
            except (SQLAlchemyError, OSError) as error:
                # The other metrics are wanted most while the database is away.
                log.warning("metrics_not_read", error=str(error).partition("\n")[0])
                return []
        return self._last[1]


class Telemetry:
    """Metrics of one service, in a registry of their own so that two services in one process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._starts: dict[str, float] = {}
        self.num_rounds = self._count("dlrm_control_rounds", "Rounds of the control loop")
        self.num_errors = self._count("dlrm_control_errors", "Errors in the control loop")
        self.round_seconds = self._time("dlrm_control_round_seconds", "Time of a round", REQUEST_BUCKETS)
        self.last_round = self._gauge("dlrm_control_last_round_timestamp_seconds", "End of the last round; 0: none yet")
        self.is_round_failed = self._gauge("dlrm_control_last_round_failed", "1 if the last round failed as a whole")
        self.leads = self._gauge("dlrm_leads", "1 where this process leads, otherwise 0")
        self.request_seconds = self._time(
            "dlrm_request_seconds", "Time to answer", REQUEST_BUCKETS, "method", "route", "status"
        )
        self.streams_open = self._gauge("dlrm_streams_open", "Open streams of events")
        self._queue_seconds = self._time(
            "dlrm_queue_wait_seconds", "Wait from submission to the first start", WAIT_BUCKETS, "launcher"
        )
        self._start_seconds = self._time(
            "dlrm_start_seconds", "Time from the start of an attempt to its first step", START_BUCKETS, "launcher"
        )
        self.attempts_ended = self._count("dlrm_attempts_ended", "Attempts that have ended", "state", "reason")
        self.restarts = self._count("dlrm_restarts", "Attempts that the service repeats after a failure")
        self.repairs = self._count("dlrm_repairs", "Things found otherwise than expected, and put right", "reason")
        self._ingest_lines = self._count("dlrm_ingest_lines", "Reports and lines of logs taken in", "way")
        self._ingest_bytes = self._count("dlrm_ingest_bytes", "Bytes of these lines", "way")
        self._ingest_seconds = self._time("dlrm_ingest_seconds", "Time to store a delivery", REQUEST_BUCKETS, "way")
        self._ingest_failures = self._count("dlrm_ingest_failures", "Deliveries that were not stored", "way", "error")
        self.removed_jobs = self._count("dlrm_retention_jobs", "Jobs that retention has removed")
        self.removed_bytes = self._count("dlrm_retention_bytes", "Bytes of their run directories")

    def read_at_scrape(self, read: Callable[[], Sequence[Metric]], seconds: float) -> None:
        """Register metrics that `read` returns, called at a scrape where the last call is `seconds` ago."""
        self._registry.register(_Reading(read, seconds))

    def begin_attempt(self, attempt_id: str, launcher: str, queue_seconds: float | None) -> None:
        """Begin to measure a start. queue_seconds: wait of the job before its first attempt; None for a later one."""
        if queue_seconds is not None:
            self._queue_seconds.labels(launcher).observe(queue_seconds)
        if len(self._starts) < MAX_STARTS:
            self._starts[attempt_id] = time.monotonic()

    def record_step(self, attempt_id: str, launcher: str) -> None:
        """Record that an attempt has made a step; with the first one its start is measured."""
        begun = self._starts.pop(attempt_id, None)
        if begun is not None:
            self._start_seconds.labels(launcher).observe(time.monotonic() - begun)

    def end_attempt(self, attempt_id: str, state: str, reason: str) -> None:
        self._starts.pop(attempt_id, None)
        self.attempts_ended.labels(state, reason).inc()

    @contextmanager
    def ingest(self, way: str, lines: Sequence[str | bytes]) -> Generator[None]:
        """Count lines that the block stores, and measure its time; an exception counts as a failure.

        way: `push` or `spool`.
        """
        begun = time.perf_counter()
        try:
            yield
        except Exception as error:
            self._ingest_failures.labels(way, type(error).__name__).inc()
            raise
        self._ingest_seconds.labels(way).observe(time.perf_counter() - begun)
        self._ingest_lines.labels(way).inc(len(lines))
        self._ingest_bytes.labels(way).inc(sum(map(len, lines)))

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def _count(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self._registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, registry=self._registry)

    def _time(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, meaning, labels, registry=self._registry, buckets=buckets)
