"""Metrics of the service for Prometheus."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class _JobsByState(Collector):
    """Collector of the number of jobs by state, which counts at every scrape so that it agrees with the database."""

    def __init__(self, count: Callable[[], dict[str, int]]) -> None:
        self._count = count

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("dlrm_jobs", "Jobs by state", labels=["state"])
        for state, number in self._count().items():
            family.add_metric([state], number)
        yield family


class Telemetry:
    """Metrics of one service, in a registry of their own so that two services in one process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.num_rounds = Counter("dlrm_control_rounds", "Rounds of the control loop", registry=self._registry)
        self.num_errors = Counter("dlrm_control_errors", "Errors in the control loop", registry=self._registry)
        self._num_cores_free = Gauge(
            "dlrm_cores_free", "Cores that no job occupies", ["launcher"], registry=self._registry
        )
        self._memory_bytes_free = Gauge(
            "dlrm_memory_bytes_free", "Memory that no job occupies", ["launcher"], registry=self._registry
        )
        self.leads = Gauge("dlrm_leads", "1 where this process leads, otherwise 0", registry=self._registry)
        self.request_seconds = Histogram(
            "dlrm_request_seconds", "Time to answer", ["method", "route", "status"], registry=self._registry
        )

    def count_jobs(self, count: Callable[[], dict[str, int]]) -> None:
        """Register the metric of jobs by state. count: returns the number of jobs in each state, called per scrape."""
        self._registry.register(_JobsByState(count))

    def set_free(self, launcher: str, num_cores: int, memory_bytes: int) -> None:
        self._num_cores_free.labels(launcher).set(num_cores)
        self._memory_bytes_free.labels(launcher).set(memory_bytes)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
