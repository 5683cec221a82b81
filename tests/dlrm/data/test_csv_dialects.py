"""CSV as programs write it: inferred, described in a document, and read again as it was written."""

import csv
import gzip
import io
import json
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.render.inferred_document import format_job_document
from dlrm.config import DataConfig, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.report.job_files import check_files
from dlrm.data.inspect.sample.csv import sample_csv
from dlrm.data.raw.open import cut_blocks
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.programs.inspect import infer_schema
from tests.dlrm.data.raw.plain import found, rows_of

FUZZ_SECONDS = 600
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
BASE = ["label,site,n", *(f"{row % 2},{'abc'[row % 3]},{row % 7}" for row in range(60))]
BASE_ROWS = [(float(row % 2), "abc"[row % 3], str(row % 7)) for row in range(60)]


def read(path: Path, delimiter: str, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
    """Rows of `label`, `site` and `n`, the latter two as text."""
    schema = SchemaConfig.model_validate(
        {"categorical": [{"name": "site"}, {"name": "n"}], "delimiter": delimiter, "columns": columns}
    )
    return [(row.label, *row.categorical) for row in rows_of(cut_csv_blocks(found(path), schema))]


def joined(lines: list[str], delimiter: str = ",", end: str = "\n") -> bytes:
    return "".join(line.replace(",", delimiter) + end for line in lines).encode()


HALF = [*BASE[:31], BASE[0], *BASE[31:], BASE[0]]
COMMENTS = ["# written by x, on a day, at an hour, in a place", "", "# version: 2", *BASE]
DIALECTS: dict[str, tuple[bytes, str]] = {
    "tab": (joined(BASE, "\t"), "\t"),
    "two colons (MovieLens)": (joined(BASE, "::"), "::"),
    "two bars": (joined(BASE, "||"), "||"),
    "Ctrl-A (Hive)": (joined(BASE, "\x01"), "\x01"),
    "caret": (joined(BASE, "^"), "^"),
    "tilde": (joined(BASE, "~"), "~"),
    "space": (joined(BASE, " "), " "),
    "CR LF": (joined(BASE, end="\r\n"), ","),
    "header repeated": (joined(HALF), ","),
    "header repeated with CR LF and a mark": (
        joined(BASE[:31], end="\r\n") + b"\xef\xbb\xbf" + joined([BASE[0], *BASE[31:]], end="\r\n"),
        ",",
    ),
    "comments before the header": (joined(COMMENTS), ","),
    "a header behind #": (b"# " + joined(BASE), ","),
    "comments and a header behind #": (b"# one comment\n# " + joined(BASE, "\t"), "\t"),
    "a mark before a comment": (b"\xef\xbb\xbf" + joined(COMMENTS), ","),
    "Excel's line": (b"sep=;\r\n" + joined(BASE, ";", "\r\n"), ";"),
    "an index of pandas": (joined([f"{'' if row == 0 else row},{line}" for row, line in enumerate(BASE)]), ","),
    "a delimiter at the end of every line": (joined([line + "," for line in BASE]), ","),
    "a delimiter at the end of every row": (joined([BASE[0], *(line + "," for line in BASE[1:])]), ","),
    "two unused columns of one name": (
        joined(["x,x," + BASE[0], *(f"{row},z," + line for row, line in enumerate(BASE[1:]))]),
        ",",
    ),
    "all at once": (
        gzip.compress(b"\xef\xbb\xbf" + joined(["#made", *(f"{line},,q" for line in HALF)], "::", "\r\n"), mtime=0),
        "::",
    ),
}


@pytest.mark.parametrize(("content", "delimiter"), DIALECTS.values(), ids=DIALECTS)
def test_a_dialect_is_recognised_and_its_rows_are_read(tmp_path: Path, content: bytes, delimiter: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    sample = sample_csv([found(path)])
    assert (sample.delimiter, sample.has_header, sample.bad_share) == (delimiter, True, 0.0)
    assert {"label", "site", "n"} <= set(sample.rows.columns)
    assert sample.rows.height == 60
    assert sample.types["n"] == sample.types["label"] == "integer"
    assert read(path, delimiter) == BASE_ROWS
    assert read_inferred(path) == 60


@pytest.mark.parametrize("delimiter", [",", "::", "\x01", " "])
@pytest.mark.parametrize("comments", [b"", b"# a comment of many words\n"])
def test_a_dialect_without_a_header_is_read(tmp_path: Path, delimiter: str, comments: bytes) -> None:
    path = tmp_path / "rows"
    path.write_bytes(comments + joined(BASE[1:], delimiter))
    sample = sample_csv([found(path)])
    assert (sample.delimiter, sample.has_header, sample.rows.height) == (delimiter, False, 60)
    assert read(path, delimiter, ["label", "site", "n"]) == BASE_ROWS


def test_a_line_after_a_repeated_header_keeps_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(joined([*HALF[:40], "2,a,1"]))
    with pytest.raises(DataError, match="line 41, label: '2' is not a label"):
        read(path, ",")


def read_inferred(path: Path) -> int:
    """Infer a document for the file, and read all of its rows by it. Return their number, bad ones included."""
    inferred = infer_schema({"files": [str(path)], "eval": None, "label": None, "positive": None, "weight": None})
    document = tomllib.loads(format_job_document(json.loads(json.dumps(inferred)), [str(path)], "rows"))
    config = DataConfig.model_validate(document["data"])
    check_files(config)
    num_rows = 0
    for block in cut_blocks(config, [found(path)]):
        parsed = block.parse(True)
        num_rows += block.num_rows
        assert parsed.table.num_rows + len(parsed.faults) <= block.num_rows
    return num_rows


@dataclass(frozen=True)
class Written:
    """A table in some dialect."""

    content: bytes
    delimiter: str
    names: list[str]
    rows: list[list[str]]
    has_header: bool


USUAL, OTHERS = ",\t;|", ["\x01", "^", "~", "::"]
LETTERS = st.sampled_from("abé0 .-'#\"\u2028,;|")
QUOTED: dict[str, Any] = {"minimal": csv.QUOTE_MINIMAL, "all": csv.QUOTE_ALL}


@st.composite
def written(draw: st.DrawFn) -> Written:
    """A plain table that Python's csv module has written, with what other programs put around it."""
    delimiter = draw(st.sampled_from([*USUAL, *OTHERS]))
    # Without a header, or with a delimiter that is not usual, texts with others would leave the delimiter in doubt.
    has_header = draw(st.booleans()) if delimiter in USUAL else True
    hard = delimiter in USUAL and has_header
    texts = st.text(LETTERS if hard else st.sampled_from("abé0.'"), max_size=6)
    row = st.tuples(st.sampled_from(["0", "1"]), texts, texts, st.integers(0, 99).map(str)).map(list)
    rows = draw(st.lists(row, min_size=1, max_size=12))
    num_rows = len(rows)
    names = ["label", "site", draw(st.sampled_from(["page", "Ünï", "a b" if delimiter in USUAL else "a_b"])), "n"]
    end = draw(st.sampled_from(["\n", "\r\n"]))
    sink = io.StringIO()
    if delimiter in USUAL:
        quoting = QUOTED[draw(st.sampled_from(sorted(QUOTED)))]
        writer = csv.writer(sink, delimiter=delimiter, lineterminator="\n", quoting=quoting)
        writer.writerows([names, *rows])
    else:
        sink.write("".join(delimiter.join(row) + "\n" for row in [names, *rows]))
    lines = sink.getvalue().split("\n")[:-1]
    header, lines = lines[0], lines[1:]
    for place in sorted(draw(st.lists(st.integers(0, num_rows), max_size=2)), reverse=True) if has_header else ():
        lines.insert(place, header)
    trailing = delimiter if draw(st.booleans()) else ""
    lines = [line + trailing for line in ([header, *lines] if has_header else lines)]
    comments = draw(st.lists(st.sampled_from(["# x", "#"]), max_size=2))
    text = end.join([*comments, *lines]) + draw(st.sampled_from(["", end]))
    content = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + text.encode()
    compress = draw(st.sampled_from([None, gzip.compress, lambda data: pa.compress(data, codec="zstd", asbytes=True)]))
    names = [*names, *([""] if trailing else [])]
    return Written(content if compress is None else compress(content), delimiter, names, rows, has_header)


def check_plain(directory: Path, table: Written) -> None:
    path = directory / "rows"
    path.write_bytes(table.content)
    sample = sample_csv([found(path)])
    assert sample.delimiter == table.delimiter
    if not sample.has_header:
        # A first row of texts over numbers may look like a header; with one, all is clear.
        assert not table.has_header
    names = [name or "blank" for name in table.names]
    schema = SchemaConfig.model_validate(
        {
            "categorical": [{"name": name} for name in table.names[1:4]],
            "delimiter": table.delimiter,
            "columns": None if table.has_header else names,
        }
    )
    rows = rows_of(cut_csv_blocks(found(path), schema))
    expected = [(float(label), *(text or None for text in texts)) for label, *texts in table.rows]
    assert [(row.label, *row.categorical) for row in rows] == expected


PIECES = st.sampled_from(
    [
        *(
            "a",
            "1",
            "0",
            "label",
            ",",
            ";",
            "\t",
            "|",
            "::",
            '"',
            '""',
            "#",
            "\n",
            "\r\n",
            "\r",
            " ",
            "\x01",
            "\0",
            "é",
        ),
        *(
            "é",
            "{",
            "}",
            "[",
            "]",
            "<",
            ":",
            "NA",
            "-",
            ".",
            "\ufeff",
            "\udcff",
            "1e999",
            "2024-01-01",
            "sep=;",
            "\u2028",
        ),
        '{"label": 1}',
    ]
)


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """A file of some lines of a table, and of pieces that readers stumble over."""
    line = st.sampled_from([*BASE[:5], "1,a,3"]) | st.lists(PIECES, max_size=8).map("".join)
    lines = draw(st.lists(line, max_size=12))
    pieces = draw(st.lists(PIECES, max_size=12))
    end = draw(st.sampled_from(["\n", "\r\n", "\r", ""]))
    text = draw(st.sampled_from(["", "\ufeff", "# c\n"])) + end.join(lines) + "".join(pieces)
    content = text.encode(errors="surrogateescape")
    return draw(st.sampled_from([lambda data: data, gzip.compress]))(content)


def check_torn(directory: Path, content: bytes) -> None:
    path = directory / "rows"
    path.write_bytes(content or b"\n")
    try:
        read_inferred(path)
    except DataError as error:
        sentence = str(error)
    else:
        return
    assert sentence
    assert len(sentence.splitlines()) == 1
    assert len(sentence) < 2000


@settings(suppress_health_check=SLOW)
@given(written())
def test_a_table_that_another_program_wrote_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, table: Written
) -> None:
    check_plain(tmp_path_factory.getbasetemp(), table)


@settings(suppress_health_check=SLOW)
@given(torn())
def test_any_file_is_read_or_refused_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    check_torn(tmp_path_factory.getbasetemp(), content)


@pytest.mark.soak
@pytest.mark.timeout(FUZZ_SECONDS * 2)
def test_ten_minutes_of_any_dialect_end_in_rows_or_in_one_sentence(tmp_path: Path) -> None:
    end = time.monotonic() + FUZZ_SECONDS
    examples = 0

    @settings(max_examples=500, suppress_health_check=SLOW)
    @given(written(), torn())
    def fuzz(table: Written, content: bytes) -> None:
        nonlocal examples
        if time.monotonic() < end:
            check_plain(tmp_path, table)
            check_torn(tmp_path, content)
            examples += 2

    while time.monotonic() < end:
        fuzz()
    (tmp_path / "figure.txt").write_text(f"{examples} files\n")
