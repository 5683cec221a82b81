"""Figures for Prometheus."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class _JobsByState(Collector):
    """Counted when asked, so that the figure is the table's."""

    def __init__(self, count: Callable[[], dict[str, int]]) -> None:
        self._count = count

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("dlrm_jobs", "Jobs by state", labels=["state"])
        for state, number in self._count().items():
            family.add_metric([state], number)
        yield family


class Telemetry:
    """What this service counts; a registry of its own, so that two services in one process keep apart."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.num_rounds = Counter("dlrm_control_rounds", "Rounds of the control loop", registry=self._registry)
        self.num_errors = Counter("dlrm_control_errors", "Errors in the control loop", registry=self._registry)
        self.num_cores_free = Gauge("dlrm_cores_free", "Cores that no job holds", registry=self._registry)
        self.memory_bytes_free = Gauge("dlrm_memory_bytes_free", "Memory that no job holds", registry=self._registry)
        self.request_seconds = Histogram(
            "dlrm_request_seconds", "Time to answer", ["method", "route", "status"], registry=self._registry
        )

    def count_jobs(self, count: Callable[[], dict[str, int]]) -> None:
        """count: number of jobs by state."""
        self._registry.register(_JobsByState(count))

    def render(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self._registry)
