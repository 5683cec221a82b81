"""Files of every odd kind: each gives a job document that prepares as it stands, or one clear sentence."""

import gzip
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cli.render.inferred_document import format_job_document
from dlrm.config import JobSpec, parse_job
from dlrm.data.errors import DataError
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.programs.inspect import infer_schema

N = 600
DRAW = np.random.default_rng(0)
LABELS = (DRAW.random(N) < 0.3).astype(int)
CITIES = [f"city {number}" for number in DRAW.integers(0, 20, N)]
PRICES = DRAW.normal(10.0, 2.0, N).round(2)
START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Odd:
    """A file, and what its document must contain."""

    name: str
    content: bytes | pa.Table
    uses: dict[str, str] = field(default_factory=dict[str, str])
    """Use of some columns: `dense`, `ids`, `ranges`, `lists`, `time`, joined by +, or `out`."""
    label: str | None = None
    in_document: str = ""


def lines(*columns: Any, header: str = "click,city,price", between: str = ",", end: str = "\n") -> bytes:
    rows = [between.join(map(str, row)) for row in zip(*columns, strict=True)]
    return (end.join([header, *rows] if header else rows) + end).encode()


def typed(**columns: Any) -> pa.Table:
    return pa.table({"click": LABELS, "city": CITIES, **columns})


PLAIN = lines(LABELS, CITIES, PRICES)
PLAIN_USES = {"city": "ids", "price": "dense"}
GOOD = [
    Odd("plain.csv", PLAIN, PLAIN_USES),
    Odd("one column.csv", lines(LABELS, CITIES, header="click,city"), {"city": "ids"}),
    Odd("no header.csv", lines(PRICES, CITIES, LABELS, header=""), {"column_2": "ids"}, in_document="column_3"),
    Odd("mark.csv", b"\xef\xbb\xbf" + PLAIN, PLAIN_USES),
    Odd("carriage.csv", PLAIN.replace(b"\n", b"\r\n"), PLAIN_USES),
    Odd("semicolons.csv", PLAIN.replace(b",", b";"), PLAIN_USES),
    Odd("unicode.csv", lines(LABELS, CITIES, PRICES, header="click,Stra\u00dfe \U0001f600,\u4fa1\u683c")),
    Odd("quotes.csv", lines(LABELS, [f'"{city}, ""x"""' for city in CITIES], PRICES), {"city": "ids"}),
    Odd("spaces.csv", lines(LABELS, [f" {city}" for city in CITIES], PRICES, header="click, city, price")),
    Odd("names.csv", lines(LABELS, CITIES, PRICES, header='click,"a # b","c = {}"')),
    Odd("huge.csv", lines(LABELS, [10**19 + row % 30 for row in range(N)], PRICES), {"city": "ids"}),
    Odd(
        "words for missing.csv",
        lines(LABELS, ["?" if row % 7 else "a b" for row in range(N)], [p if p > 9 else "NA" for p in PRICES]),
        {"price": "dense"},
        in_document='missing = ["NA"]',
    ),
    Odd("empty column.csv", lines(LABELS, CITIES, [""] * N), {"price": "out"}),
    Odd("3 rows.csv", b"click,city\n0,a\n1,b\n1,a\n", {"city": "ids"}),
    Odd("pandas.csv", lines(range(N), LABELS, CITIES, header=",click,city"), {"": "out"}),
    Odd("index.csv", lines(range(N), LABELS, CITIES, header="Unnamed: 0,click,city"), {"Unnamed: 0": "out"}),
    Odd("income.csv", lines(CITIES, np.where(LABELS, " >50K", " <=50K"), header="a,income"), in_document='" >50K"'),
    Odd("as told.csv", lines(LABELS + 1, CITIES, PRICES, header="a,b,c"), label="a", in_document='positive = "2"'),
    Odd(
        "gaps.csv",
        lines(["" if row % 50 == 0 else LABELS[row] for row in range(N)], CITIES, PRICES),
        in_document="max_bad",
    ),
    Odd("latin.csv", PLAIN + b"1,caf\xe9,2.5\n" * 5, PLAIN_USES, in_document="max_bad_fraction"),
    Odd("wide.parquet", typed(**{f"x{column}": DRAW.normal(size=N) for column in range(500)}), {"x499": "dense"}),
    Odd("all missing.parquet", typed(x=pa.nulls(N), y_=pa.nulls(N, pa.float64())), {"x": "out", "y_": "out"}),
    Odd(
        "decimals.parquet",
        typed(x=pa.array([Decimal(row) / 8 for row in range(N)], pa.decimal128(9, 3))),
        {"x": "dense"},
    ),
    Odd("vectors.parquet", typed(x=[[0.5, 1.5]] * N), {"x": "dense"}),
    Odd("structs.parquet", typed(x=[{"a": 1, "b": {"c": row}} for row in range(N)]), {"x": "out"}),
    Odd("maps.parquet", typed(x=pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64()))), {"x": "out"}),
    Odd(
        "binary.parquet",
        typed(x=pa.array([b"\xff\xfe", b"a"] * (N // 2)), y_=pa.array([b"a", b"b", b"c"] * (N // 3))),
        {"x": "ids", "y_": "ids"},
    ),
    Odd("dictionary.parquet", typed(x=pa.array(CITIES[::-1]).dictionary_encode()), {"x": "ids"}),
    Odd("times.parquet", typed(x=[START + timedelta(hours=5 * row) for row in range(N)]), {}),
    Odd("dates.parquet", typed(x=[date(2024, 1, 1) + timedelta(days=row) for row in range(N)]), {}),
    Odd(
        "clock.parquet",
        typed(x=[time(row % 24) for row in range(N)], d=[timedelta(row) for row in range(N)]),
        {"x": "out", "d": "out"},
    ),
    Odd("index.parquet", typed(__index_level_0__=range(N)), {"__index_level_0__": "out"}),
    Odd("hashes.csv", lines(LABELS, [hash((row % 30, 1)) for row in range(N)], PRICES), {"city": "ids"}),
    Odd(
        "unsigned.parquet",
        typed(x=pa.array([2**63 + row % 9 * 10**15 for row in range(N)], pa.uint64())),
        {"x": "ids"},
    ),
    Odd("half.parquet", typed(x=pa.array(PRICES.astype(np.float16))), {"x": "dense"}),
    Odd("numbers.parquet", typed(x=[[1, 2, row % 5] if row % 7 else None for row in range(N)]), {"x": "lists"}),
    Odd(
        "numbered.parquet",
        typed(x=pa.array(DRAW.integers(0, 9, N)).dictionary_encode(), f=pa.array(PRICES).dictionary_encode()),
        {"x": "ids", "f": "dense"},
    ),
]
BAD = [
    (Odd("empty.csv", b""), "the file is empty"),
    (Odd("header.csv", b"click,city\n"), "there are no rows"),
    (Odd("only a label.csv", lines(LABELS, header="click")), "no column is left to learn from"),
    (Odd("only a label.parquet", pa.table({"click": LABELS})), "no column is left to learn from"),
    (Odd("no rows.parquet", typed().slice(0, 0)), "there are no rows"),
    (Odd("twice.csv", lines(LABELS, CITIES, CITIES, header="click,x,x")), "two columns have this name"),
    (Odd("one class.csv", lines([0] * N, CITIES, header="click,city")), "the label is 0 in every row"),
    (
        Odd("three.csv", lines([row % 3 for row in range(N)], CITIES, header="click,city"), label="click"),
        "contains 0, 1, 2",
    ),
    (Odd("unclear.csv", lines(LABELS, CITIES, 1 - LABELS, header="a,b,c")), "--label a or --label c"),
    (Odd("no label.csv", lines(CITIES, PRICES, header="a,b")), "no column has exactly two values"),
    (Odd("all broken.csv", b"click,city\n" + b'1,"a\nb"\n0,"a\nb"\n' * 90), "line 2: a quoted value does not end"),
    (Odd("all latin.csv", b"click,city\n" + b"1,\xe9\n0,\xe8\n" * 90), "100.00% of the lines are not UTF-8"),
    (Odd("latin header.csv", b"click,caf\xe9\n1,2\n"), "not UTF-8"),
    (Odd("zip.csv", b"PK\x03\x04" + bytes(99)), "is a zip archive"),
    (Odd("utf-16.csv", PLAIN.decode().encode("utf-16")), "is UTF-16 text"),
    (Odd("cut.csv.gz", gzip.compress(PLAIN, mtime=0)[:-20]), "the file is truncated"),
    (Odd("cut.parquet", b"PAR1" + bytes(99)), "is a truncated Parquet file"),
    (Odd("nothing there.parquet", pa.table({"click": LABELS, "x": pa.nulls(N)})), "no column is left"),
    (Odd("no labels.parquet", typed(y_=pa.nulls(N, pa.int64())), label="y_"), "the label|is Int64|'y_'"),
]


def write(odd: Odd, directory: Path) -> Path:
    path = directory / odd.name
    if isinstance(odd.content, bytes):
        path.write_bytes(odd.content)
    else:
        parquet.write_table(odd.content, path)
    return path


def infer_document(path: Path, label: str | None) -> tuple[str, JobSpec]:
    inferred = infer_schema({"files": [str(path)], "eval": None, "label": label, "positive": None, "weight": None})
    text = format_job_document(inferred, [str(path)], "odd")
    return text, parse_job(tomllib.loads(text))


def describe_uses(job: JobSpec, name: str) -> str:
    schema = job.data.raw_schema
    uses = ["dense"] if any(column.name == name for column in schema.dense) else []
    for column in schema.categorical:
        if column.name == name:
            kinds = {"lists": column.multi_hot, "ranges": column.bucketize, "time": column.time_part, "ids": True}
            uses.append(next(kind for kind, is_set in kinds.items() if is_set))
    return "+".join(uses) or "out"


@pytest.mark.parametrize(
    "odd",
    # Five hundred columns take as long as all other files.
    [pytest.param(odd, marks=pytest.mark.slow) if odd.name == "wide.parquet" else odd for odd in GOOD],
    ids=lambda odd: odd.name,
)
def test_an_odd_file_gives_a_document_that_prepares_as_it_stands(odd: Odd, tmp_path: Path) -> None:
    text, job = infer_document(write(odd, tmp_path), odd.label)
    assert odd.in_document in text
    for name, uses in odd.uses.items():
        assert describe_uses(job, name).startswith(uses), text
    prepared = find_or_prepare(
        job.data, None, tmp_path / "cache", base_directory=tmp_path, num_threads=1, on_event=lambda _: None
    )
    assert (prepared / "meta.json").exists()


@pytest.mark.parametrize(("odd", "message"), BAD, ids=lambda case: case.name if isinstance(case, Odd) else "")
def test_a_file_that_cannot_be_learned_from_gives_one_clear_sentence(odd: Odd, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as raised:
        infer_document(write(odd, tmp_path), odd.label)
    assert "\n" not in str(raised.value)
