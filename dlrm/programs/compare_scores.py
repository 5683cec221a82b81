"""Comparison of kept scores: `python -m dlrm.programs.compare_scores`.

Reads one JSON document from stdin, {"trials": {KEY: {…}}, "singles": [KEY, …], "pairs": [[KEY, KEY], …]}:

trials    {"logits", "labels", "weights" or null, "num_rows"}: NumPy files of float32 numbers, one for each row
singles   trials that are measured by themselves
pairs     two trials on the same rows

Writes one line `{"kind": "result", "faults": {KEY: {"file", "reason"}}, "singles": […], "pairs": […]}` to stdout. A
trial has a fault where one of its files, "logits", "labels" or "weights", is no such array. Singles and pairs are in
the same order, null for trials with a fault. A single has the `log_loss_standard_error` over samples of rows; a pair
has the differences `auc` and `log_loss`, first less second, with `auc_standard_error` and `log_loss_standard_error`.
"""

import json
import sys
from functools import cache
from typing import Any

import numpy as np

from dlrm.metrics.binary import Vector
from dlrm.metrics.paired import compare_aucs, compare_log_losses, measure_log_loss
from dlrm.programs.json_lines import print_line
from dlrm.record import EXIT_DONE
from hostinfo.fast_exit import skip_last_collection
from hostinfo.stop_signals import end_on_stop_signals

Trial = dict[str, Any]


class ScoresError(Exception):
    """Exception for a file of scores that cannot be used; its message says why."""


def main() -> int:
    """Compare what stdin names, and return the exit code."""
    end_on_stop_signals()
    request = json.load(sys.stdin)
    trials: dict[str, Trial] = request["trials"]
    faults = {key: fault for key, trial in trials.items() if (fault := _find_fault(trial)) is not None}
    singles = [None if key in faults else _measure(trials[key]) for key in request["singles"]]
    pairs = [
        None if first in faults or second in faults else _compare(trials[first], trials[second])
        for first, second in request["pairs"]
    ]
    print_line({"kind": "result", "faults": faults, "singles": singles, "pairs": pairs})
    return EXIT_DONE


def _find_fault(trial: Trial) -> dict[str, str] | None:
    """Find the first file of a trial that cannot be used, with the reason; None if all can."""
    for name in ("logits", "labels", "weights"):
        if trial[name] is not None:
            try:
                _check_values(name, _load(trial[name], trial["num_rows"]))
            except ScoresError as error:
                return {"file": name, "reason": str(error)}
    return None


def _check_values(name: str, values: Vector) -> None:
    """Raise ScoresError if numbers cannot be what a file of that name has."""
    if name == "labels" and not np.all((values == 0) | (values == 1)):
        raise ScoresError("has labels other than 0 and 1")
    if name == "weights" and not (values.min() >= 0 and 0 < values.max() < np.inf):
        raise ScoresError("has weights below 0, or infinite ones, or all of them are 0")


@cache
def _load(path: str, num_rows: int) -> Vector:
    """Map a number for each row, once: trials share their labels, and one trial may be in several pairs.

    Raises ScoresError for a file that does not have them.
    """
    try:
        # Mapped, so that a header with too many rows is an error before memory is taken for them.
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ScoresError(f"cannot be read: {error.strerror}") from None
    except Exception:
        # NumPy lets those of its parsers through, of tokens and of zip archives among others.
        raise ScoresError("is not a whole NumPy file of numbers") from None
    if not isinstance(values, np.ndarray) or values.dtype != np.float32:
        raise ScoresError(f"has numbers of type {getattr(values, 'dtype', 'unknown')}, not float32")
    if values.shape != (num_rows,):
        raise ScoresError(f"has the shape {values.shape}, not {(num_rows,)} as its line of the results says")
    if np.isnan(values).any():
        raise ScoresError("has NaN among its numbers")
    return values


def _measure(trial: Trial) -> dict[str, Any]:
    labels, weights = _load_rows(trial)
    logits = _load(trial["logits"], trial["num_rows"])
    return {"log_loss_standard_error": measure_log_loss(labels, logits, weights).standard_error}


def _compare(one: Trial, other: Trial) -> dict[str, Any]:
    labels, weights = _load_rows(one)
    first, second = (_load(trial["logits"], one["num_rows"]) for trial in (one, other))
    auc, log_loss = compare_aucs(labels, first, second, weights), compare_log_losses(labels, first, second, weights)
    return {
        "auc": None if auc is None else auc.value,
        "auc_standard_error": None if auc is None else auc.standard_error,
        "log_loss": log_loss.value,
        "log_loss_standard_error": log_loss.standard_error,
    }


def _load_rows(trial: Trial) -> tuple[Vector, Vector | None]:
    """Load the labels and the weights of a trial without a fault."""
    num_rows = trial["num_rows"]
    return _load(trial["labels"], num_rows), None if trial["weights"] is None else _load(trial["weights"], num_rows)


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
