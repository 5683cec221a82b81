"""Job document of the demo, on the synthetic data of `examples/demo.toml` or on a Criteo TSV file, plain or gzip."""

import glob
import gzip
import tomllib
import zlib
from pathlib import Path
from typing import Any

from cli.local.errors import BadInputError

DOCUMENT = Path(__file__).parents[2] / "examples" / "demo.toml"
MIN_STEPS = 30
MAX_BATCH = 16_384
MIN_BATCH = 64
EVAL_FRACTION = 0.1
READ_BYTES = 2**24
GZIP = b"\x1f\x8b"
"""Magic number: the first bytes of a gzip file."""


def make_synthetic_job(num_rows: int | None = None) -> dict[str, Any]:
    """Load the document of `examples/demo.toml`, and replace its number of rows where `num_rows` is given."""
    document = tomllib.loads(DOCUMENT.read_text())
    if num_rows is not None:
        document["data"]["synthetic"]["num_rows"] = num_rows
        _fit_batch(document, num_rows)
    return document


def make_criteo_job(path: Path) -> dict[str, Any]:
    """Make the document of a job that trains the demo's model on the rows of the Criteo TSV file `path`.

    Raises BadInputError if the file cannot be read or has too few rows.
    """
    try:
        num_rows = _count_lines(path)
    except (OSError, EOFError, zlib.error) as error:
        fault = f"{_describe_cause(error)} (valid: a Criteo TSV file, plain or gzip)"
        raise BadInputError(f"DATA={path}: {fault}") from None
    if num_rows < 2 * MIN_BATCH:
        raise BadInputError(f"DATA={path}: {num_rows} rows are too few (valid: at least {2 * MIN_BATCH})")
    document = tomllib.loads(DOCUMENT.read_text())
    document["name"] = "demo-criteo"
    del document["table_optimizer"]
    document["data"] = {"train": [glob.escape(path.name)], "format": "criteo_tsv", "eval_fraction": EVAL_FRACTION}
    _fit_batch(document, num_rows)
    return document


def _fit_batch(document: dict[str, Any], num_rows: int) -> None:
    """Set batch size and epochs: the largest batch that gives MIN_STEPS steps in one epoch.

    One epoch is preferred because further epochs over few rows overfit; only where the smallest batch gives too few
    steps are there more.
    """
    num_train_rows = int(num_rows * (1 - document["data"]["eval_fraction"]))
    batch = MAX_BATCH
    while batch > MIN_BATCH and num_train_rows < batch * MIN_STEPS:
        batch //= 2
    num_steps_per_epoch = max(1, num_train_rows // batch)
    document["batch"] = {"global_size": batch}
    document.setdefault("run", {})["epochs"] = -(-MIN_STEPS // num_steps_per_epoch)


def _count_lines(path: Path) -> int:
    with path.open("rb") as raw:
        is_gzip = raw.read(len(GZIP)) == GZIP
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if is_gzip else raw as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(READ_BYTES), b""))


def _describe_cause(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else f"not a complete gzip file: {error}"
