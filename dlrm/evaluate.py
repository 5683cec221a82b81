"""Measures a trained model: `python -m dlrm.evaluate MODEL [DATA ...]`, one line of JSON.

MODEL is the `model/` directory of a run. DATA are files in the format the model was trained on; without them the model
is measured on the rows that its own run held out.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from dlrm.data.errors import DataError
from dlrm.data.open import open_data, open_rows
from dlrm.data.rows import RowSource
from dlrm.export import ModelError, SavedModel, load_saved_model
from dlrm.metrics.binary import binary_metrics, constant_log_loss
from dlrm.model import PlainModel
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE

NUM_ROWS_AT_A_TIME = 8192


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", nargs="*", help="files or patterns")
    arguments = parser.parse_args()
    try:
        saved = load_saved_model(arguments.model)
        rows = _open_rows(saved, arguments.data)
        probabilities, labels = score(saved.model, rows)
    except (DataError, ModelError, OSError) as error:
        print(f"dlrm evaluate: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    metrics = asdict(binary_metrics(labels, probabilities))
    constant = constant_log_loss(labels, saved.train_label_rate)
    print(json.dumps({**metrics, "constant_log_loss": constant}))  # noqa: T201
    return EXIT_DONE


def _open_rows(saved: SavedModel, patterns: list[str]) -> RowSource:
    if not patterns:
        return open_data(saved.data, data_roots=None).evaluation
    if saved.vocabularies is None:
        message = "the model was trained on a synthetic log and reads no files"
        raise DataError(message, field="DATA", valid="leave it out")
    return open_rows(patterns, saved.vocabularies, data_roots=None)


@torch.no_grad()
def score(model: PlainModel, rows: RowSource) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels of all rows, in their order."""
    probabilities: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for start in range(0, rows.num_rows, NUM_ROWS_AT_A_TIME):
        read = rows.read(np.arange(start, min(start + NUM_ROWS_AT_A_TIME, rows.num_rows)))
        logits = model(torch.from_numpy(read.dense), torch.from_numpy(read.ids))
        probabilities.append(torch.sigmoid(logits).numpy())
        labels.append(read.labels)
    return np.concatenate(probabilities), np.concatenate(labels)


if __name__ == "__main__":
    sys.exit(main())
