"""Files whose columns have any names: inference writes a document that can be prepared, or says what is wrong."""

import csv
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from cli.render.inferred_document import format_job_document, is_left_out
from dlrm.config import parse_job
from dlrm.data.errors import DataError
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare.prepare import prepare
from dlrm.data.raw.files import find_splits
from dlrm.programs.inspect import infer_schema

NUM_ROWS = 1000
SOAK_SECONDS = 600
NASTY = [
    *["", " ", "label", " label", "weight", "col", "col:buckets", "col:hour", "col:missing", "a.b", "a", "a.b.c", "a."],
    *["{}", "c{}", "[x]", "a*", "?", "!", '"', "'", '"""', "\\", "#", "=", ",", ";", "\t", "|", "\n", "\r", "/", ".."],
    *["\0", "a\0b", "\x1b[31m", "\x7f", "\u0085", "\u2028", "é", "e\u0301", "\ufeffx", "\u202ex", "true", "1", "-1"],
    *[
        "nan",
        "NA",
        "None",
        "x" * 200,
        "x" * 201,
        "é" * 200,
        "__index_level_0__",
        "key_value",
        "element",
        "type",
        "keys",
    ],
]
NAMES = st.lists(
    st.one_of(st.sampled_from(NASTY), st.text(st.characters(codec="utf-8"), max_size=8)), min_size=1, max_size=7
)


def make_columns(kinds: Sequence[int]) -> list[pa.Array]:
    """Columns of many kinds, which predict the label, each in its way."""
    random = np.random.default_rng(0)
    label = np.arange(NUM_ROWS) % 2
    hours = random.integers(0, 2000, NUM_ROWS) * 24 + label * 9
    number = pa.array(label + random.normal(size=NUM_ROWS))
    ids = pa.array(random.integers(0, 20, NUM_ROWS) * 2 + label)
    made = [
        number,
        ids,
        pa.array([f"v{value}" for value in ids.to_pylist()]),
        pa.array(hours * 3600 * 1_000_000, pa.timestamp("us")),
        pa.array([[value, 1] for value in ids.to_pylist()]),
        pa.StructArray.from_arrays([ids, number], ["id", "b"]),
        pa.array([value if value > 0 else None for value in number.to_pylist()]),
    ]
    return [made[kind] for kind in kinds]


def write_parquet(path: Path, names: Sequence[str], columns: Sequence[pa.Array]) -> None:
    parquet.write_table(pa.Table.from_arrays(list(columns), list(names)), path)


def write_csv(path: Path, names: Sequence[str], columns: Sequence[pa.Array]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(zip(*(column.to_pylist() for column in columns), strict=True))


def check_names(write: Callable[..., None], names: Sequence[str], kinds: Sequence[int]) -> None:
    """Infer, parse and prepare a file with columns of these names and kinds, the label the first of them."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "rows.data"
        label = pa.array(np.arange(NUM_ROWS) % 2)
        try:
            write(path, names, [label, *make_columns(kinds)])
        # The writers refuse some names themselves.
        except (pa.ArrowInvalid, csv.Error):
            return
        try:
            inferred = infer_schema(
                {"files": [str(path)], "eval": None, "label": names[0], "positive": None, "weight": None}
            )
        except DataError:
            return
        job = parse_job(tomllib.loads(format_job_document(inferred, [str(path)], "names")))
        schema = job.data.raw_schema
        used = {choice["name"] for choice in inferred["choices"] if not is_left_out(choice)}
        assert used == {*schema.input_names}
        train, evaluation = find_splits(job.data, None, Path())
        output = Path(temporary) / "packed"
        prepare(job.data, train, evaluation, output, num_threads=1, on_event=lambda _: None)
        packed = open_packed(output)
        assert packed.train.num_rows + packed.evaluation.num_rows == NUM_ROWS
        assert [feature.name for feature in packed.schema.features] == [c.feature for c in schema.categorical]


def run_examples(number: int) -> None:
    """Check some random files."""

    @settings(max_examples=number, deadline=None, database=None, suppress_health_check=[*HealthCheck])
    @given(st.sampled_from([write_parquet, write_csv]), NAMES, st.lists(st.integers(0, 6), min_size=7, max_size=7))
    def check(write: Callable[..., None], names: list[str], kinds: list[int]) -> None:
        check_names(write, names, kinds[: len(names) - 1])

    check()


def test_any_names_of_columns_end_in_prepared_rows_or_in_one_sentence() -> None:
    run_examples(15)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_any_names_of_columns_for_ten_minutes() -> None:
    end = time.monotonic() + SOAK_SECONDS
    while time.monotonic() < end:
        run_examples(500)
