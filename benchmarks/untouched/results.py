"""Results in a file, a line of JSON for each fitted model, so that an interrupted benchmark continues."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

LOGISTIC_REGRESSION = "logistic regression"
LIGHTGBM = "LightGBM"
OURS = "ours"


@dataclass(frozen=True)
class Result:
    """Result of one model on one data set."""

    set_name: str
    model: str
    """LOGISTIC_REGRESSION, LIGHTGBM or OURS."""
    seed: int | None
    """Seed of our model; None for a reference."""
    num_train_rows: int
    num_test_rows: int
    num_columns: int
    """Columns of the file, without the label."""
    auc: float
    """AUC on the test rows."""
    log_loss: float
    """Mean log-loss on the test rows, in nats."""
    seconds: float
    """Seconds on the clock: of choosing the settings and fitting a reference, or of inference and training."""
    detail: str
    """Chosen settings of a reference, or the number of steps of our model."""


class Results:
    """Results that are finished; a new one is appended to the file at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._results = [Result(**json.loads(line)) for line in lines]

    def has(self, set_name: str, model: str, seed: int | None = None) -> bool:
        """Whether there is a result of this model, for ours with this seed."""
        return any(result.seed == seed for result in self.list_of(set_name, model))

    def list_of(self, set_name: str, model: str) -> list[Result]:
        """List the results of this model on this data set."""
        return [result for result in self._results if (result.set_name, result.model) == (set_name, model)]

    def add(self, result: Result) -> None:
        """Append a result."""
        self._results.append(result)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
