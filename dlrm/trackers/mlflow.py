"""MLflow: a run in an experiment of a server, or in a database file of the run directory."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.tracking import MlflowClient

from dlrm.config import MlflowConfig
from dlrm.trackers.tracker import Figures, Position, RunEnd, TrackedRun

DATABASE, ARTIFACTS = "mlflow.db", "mlruns"
KEY_TAG = "dlrm.run"
MAX_METRICS, MAX_PARAMS = 1000, 100
"""Most metrics and most parameters of one request."""
REQUEST_LIMITS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
"""Limits of one request, as MLflow's variables: whoever calls a tracker tries again."""
STATUSES = {"succeeded": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
STEP_METRIC, EVALUATION_METRIC = "train/samples_per_second", "evaluation/log_loss"
"""Metrics that every step and every evaluation has."""
Item = TypeVar("Item")
_ODD = re.compile(r"[^\w.\-/ :]")


class Mlflow:
    """One MLflow run, which all attempts of a job continue."""

    def __init__(self, config: MlflowConfig) -> None:
        self._config = config

    def start(self, run: TrackedRun) -> Position:
        """Find the run by its tag, or create it, with the settings as parameters and the labels as tags."""
        for name, value in REQUEST_LIMITS.items():
            os.environ.setdefault(name, value)
        own_database = f"sqlite:///{run.directory / DATABASE}"
        uri = self._config.uri or os.environ.get("MLFLOW_TRACKING_URI") or own_database
        self._client = MlflowClient(uri)
        experiment = self._find_experiment((run.directory / ARTIFACTS).as_uri() if uri == own_database else None)
        tags = {f"labels.{name}": value for name, value in run.labels.items()}
        tags |= {KEY_TAG: run.key, "dlrm.job_id": run.job_id, "dlrm.attempt": str(run.attempt)}
        found = self._client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{run.key}'", max_results=1)
        entity: Run = found[0] if found else self._client.create_run(experiment, run_name=run.name, tags=tags)
        self._id = entity.info.run_id
        self._client.update_run(self._id, status="RUNNING")
        self._log_settings(run.settings, entity.data.params)
        self._set_tags(tags)
        return Position(step=self._find_last(STEP_METRIC, 0), evaluated_step=self._find_last(EVALUATION_METRIC, -1))

    def log(self, figures: Sequence[Figures], position: Position) -> None:  # noqa: ARG002
        """Write figures; the position is found in the run itself."""
        # MLflow keeps a metric that it has already, with the same time and step, once.
        for metrics in _cut([metric for at_step in figures for metric in _list_metrics(at_step)], MAX_METRICS):
            self._client.log_batch(self._id, metrics=metrics)

    def finish(self, end: RunEnd) -> None:
        self.log([end.figures], Position())
        self._set_tags(
            {"dlrm.reason": end.outcome.reason}
            | ({"dlrm.message": end.outcome.message[:500]} if end.outcome.message else {})
            | ({"dlrm.model_path": end.model_path} if end.model_path else {})
        )
        self._client.set_terminated(self._id, STATUSES[end.outcome.state], int(1000 * end.time))

    def _find_experiment(self, artifacts: str | None) -> str:
        """Return the id of the experiment, which is created if absent. artifacts: URI for its files."""
        if (experiment := self._client.get_experiment_by_name(self._config.experiment)) is not None:
            return experiment.experiment_id
        return self._client.create_experiment(self._config.experiment, artifacts)

    def _log_settings(self, settings: Mapping[str, object], known: Mapping[str, str]) -> None:
        """Write the settings that the run lacks: MLflow's parameters never change."""
        params = [Param(_ODD.sub("_", name), str(value)) for name, value in settings.items()]
        for some in _cut([param for param in params if param.key not in known], MAX_PARAMS):
            self._client.log_batch(self._id, params=some)

    def _set_tags(self, tags: Mapping[str, str]) -> None:
        self._client.log_batch(self._id, tags=[RunTag(name, value) for name, value in tags.items()])

    def _find_last(self, name: str, default: int) -> int:
        return max((metric.step for metric in self._client.get_metric_history(self._id, name)), default=default)


def _list_metrics(figures: Figures) -> list[Metric]:
    milliseconds = int(1000 * figures.time)
    return [Metric(_ODD.sub("_", name), value, milliseconds, figures.step) for name, value in figures.values.items()]


def _cut(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    """Cut items into lists of `size`; the last one may be shorter."""
    return (list(items[start : start + size]) for start in range(0, len(items), size))
