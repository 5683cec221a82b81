"""Protocol of the benchmark: the models that are measured on a data set, and their order."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sklearn.metrics import log_loss, roc_auc_score
from threadpoolctl import threadpool_limits

from benchmarks.untouched.commands import infer_job, train_job
from benchmarks.untouched.data_set import DataSet, SetFiles, Split
from benchmarks.untouched.errors import FailedError
from benchmarks.untouched.features import Features, make_features
from benchmarks.untouched.references import Fit, list_references
from benchmarks.untouched.results import OURS, Result, Results


@dataclass(frozen=True)
class InferredJob:
    """Inferred job document, with the seconds that it took."""

    path: Path
    seconds: float


class SetMeasurement:
    """Measurement of the models on one data set; what several models need is made when the first one asks for it."""

    def __init__(self, data_set: DataSet, files: SetFiles, directory: Path) -> None:
        """Begin a measurement. directory: place for job documents, prepared rows and runs."""
        self._data_set = data_set
        self._files = files
        self._directory = directory

    def measure_missing(self, results: Results, seeds: Sequence[int]) -> Iterator[Result]:
        """Measure the references, then our model with these seeds, as far as `results` has them not; yield each.

        Raises FailedError if the product does not train.
        """
        name = self._data_set.name
        for model, fit in list_references().items():
            if not results.has(name, model):
                yield self._measure_reference(model, fit)
        for seed in seeds:
            if not results.has(name, OURS, seed):
                yield self._measure_ours(seed)

    @cached_property
    def _split(self) -> Split:
        return self._files.read()

    @cached_property
    def _features(self) -> tuple[Features, Features]:
        return make_features(self._data_set, self._split)

    @cached_property
    def _job(self) -> InferredJob:
        started = time.perf_counter()
        path = infer_job(self._data_set, self._files, self._directory)
        return InferredJob(path, time.perf_counter() - started)

    def _measure_reference(self, model: str, fit: Fit) -> Result:
        train, test = self._features
        started = time.perf_counter()
        # Threads that wait actively for each other crawl on cores that are busy with other work.
        with threadpool_limits(1):
            prediction = fit(train, test)
        seconds = time.perf_counter() - started
        auc = float(roc_auc_score(test.labels, prediction.probabilities))
        loss = float(log_loss(test.labels, prediction.probabilities))
        return self._make_result(model, None, auc, loss, seconds, prediction.detail)

    def _measure_ours(self, seed: int) -> Result:
        job = self._job
        started = time.perf_counter()
        trained = train_job(job.path, seed, self._directory)
        seconds = job.seconds + time.perf_counter() - started
        if trained["auc"] is None or trained["log_loss"] is None:
            raise FailedError("dlrm train printed no AUC or log-loss of the test rows")
        detail = f"{trained['num_steps']} steps"
        return self._make_result(OURS, seed, trained["auc"], trained["log_loss"], seconds, detail)

    def _make_result(
        self, model: str, seed: int | None, auc: float, loss: float, seconds: float, detail: str
    ) -> Result:
        split = self._split
        num_columns = len(self._data_set.list_columns(split.train))
        rows = split.train.height, split.test.height
        return Result(self._data_set.name, model, seed, *rows, num_columns, auc, loss, seconds, detail)
