"""Comparison of kept scores: `python -m dlrm.programs.compare_scores`.

Reads one JSON document from stdin, {"singles": […], "pairs": […]}, with paths of NumPy files of float32 logits:

singles   {"logits", "labels", "weights" or null}
pairs     {"first", "second", "labels", "weights" or null}: two models on the same rows

Writes one line `{"kind": "result", "singles": […], "pairs": […]}` to stdout, in the same order. A single has the
`log_loss_standard_error` over samples of rows, a pair `auc` and `log_loss` of the first less those of the second, with
`auc_standard_error` and `log_loss_standard_error`. Bad input gives one line on stderr and exit code 64.
"""

import json
import sys
from typing import Any

import numpy as np

from dlrm.metrics.binary import Vector
from dlrm.metrics.paired import compare_aucs, compare_log_losses, measure_log_loss
from dlrm.programs.json_lines import print_line
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE
from hostinfo.stop_signals import end_on_stop_signals


class ScoresError(Exception):
    """Exception for a file of scores that cannot be used; its message names the file."""


def main() -> int:
    """Compare what stdin names, and return the exit code."""
    end_on_stop_signals()
    request = json.load(sys.stdin)
    try:
        singles = [_measure(single) for single in request["singles"]]
        pairs = [_compare(pair) for pair in request["pairs"]]
    except (ScoresError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_INPUT
    print_line({"kind": "result", "singles": singles, "pairs": pairs})
    return EXIT_DONE


def _measure(single: dict[str, str | None]) -> dict[str, Any]:
    labels, weights, logits = _load_rows(single, "logits")
    return {"log_loss_standard_error": measure_log_loss(labels, logits[0], weights).standard_error}


def _compare(pair: dict[str, str | None]) -> dict[str, Any]:
    labels, weights, (first, second) = _load_rows(pair, "first", "second")
    auc, log_loss = compare_aucs(labels, first, second, weights), compare_log_losses(labels, first, second, weights)
    return {
        "auc": None if auc is None else auc.value,
        "auc_standard_error": None if auc is None else auc.standard_error,
        "log_loss": log_loss.value,
        "log_loss_standard_error": log_loss.standard_error,
    }


def _load_rows(files: dict[str, str | None], *scores: str) -> tuple[Vector, Vector | None, list[Vector]]:
    """Return the labels, the weights and the scores, all of one length and valid."""
    labels = _load(files["labels"])
    weights = None if files["weights"] is None else _load(files["weights"])
    vectors = [_load(files[name]) for name in scores]
    for name, vector in zip(scores, vectors, strict=True):
        if vector.shape != labels.shape:
            raise ScoresError(f"{files[name]}: {len(vector):,} rows, but its labels have {len(labels):,}")
        if np.isnan(vector).any():
            raise ScoresError(f"{files[name]}: has NaN among its logits")
    return labels, weights, vectors


def _load(path: str | None) -> Vector:
    assert path is not None, "only weights may be left out"
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        raise ScoresError(f"{path}: not a NumPy file of numbers (valid: as `dlrm sweep` has written it)") from None


if __name__ == "__main__":
    sys.exit(main())
