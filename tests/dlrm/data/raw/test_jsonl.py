"""JSON Lines: values as Python's own JSON reader has them, whatever path reads them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.text.jsonl import cut_jsonl_blocks
from tests.dlrm.data.raw.plain import Row, found, good_rows_of, rows_of

SCHEMA = SchemaConfig.model_validate(
    {
        "weight": "w",
        "missing": ["NA"],
        "dense": [{"name": "x"}],
        "categorical": [
            {"name": "site"},
            {"name": "user.id", "type": "integer"},
            {"name": "tags", "multi_hot": True},
        ],
    }
)
GOOD: dict[str, Any] = {"label": 1, "w": 2, "x": 0.5, "site": "a", "user": {"id": 7}, "tags": ["p", "q"]}
PLAIN = Row(1.0, 2.0, (0.5,), ("a", 7, ("p", "q")))
SLOW = '{"label": 0, "w": 1, "x": NaN, "site": null, "user": {}, "tags": []}'
"""A line that Python writes for a missing number, and only the slow reader accepts."""
PLAIN_SLOW = Row(0.0, 1.0, (None,), (None, None, ()))


def write(directory: Path, *lines: str, end: str = "\n") -> Path:
    path = directory / "rows"
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


@pytest.mark.parametrize("others", [(), (SLOW,)], ids=["fast", "slow"])
@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ({"label": True}, {"label": 1.0}),
        ({"label": 0.0}, {"label": 0.0}),
        ({"label": "1"}, {"label": 1.0}),
        ({"x": None}, {"x": None}),
        ({"x": ""}, {"x": None}),
        ({"x": "NA"}, {"x": None}),
        ({"x": 1e-7}, {"x": 1e-7}),
        ({"x": -1.5e30}, {"x": -1.5e30}),
        ({"x": False}, {"x": 0.0}),
        ({"site": 1}, {"site": "1"}),
        ({"site": 1.0}, {"site": "1"}),
        ({"site": "1.0"}, {"site": "1.0"}),
        ({"site": 0.25}, {"site": "0.25"}),
        ({"site": True}, {"site": "true"}),
        ({"site": 2**64 - 1}, {"site": str(2**64 - 1)}),
        ({"site": 2**70 + 1}, {"site": str(2**70 + 1)}),
        ({"site": "[1, 2]"}, {"site": "[1, 2]"}),
        ({"site": "Zürich\n\u2028"}, {"site": "Zürich\n\u2028"}),
        ({"user": {"id": 2**53 + 1}}, {"id": 2**53 + 1}),
        ({"user": {"id": "12"}}, {"id": 12}),
        ({"user": None}, {"id": None}),
        ({"user": {"name": "x"}}, {"id": None}),
        ({"user": None, "user.id": 5}, {"id": 5}),
        ({"tags": None}, {"tags": (None,)}),
        ({"tags": []}, {"tags": ()}),
        ({"tags": [1, None, "b", 2.0]}, {"tags": ("1", None, "b", "2")}),
    ],
)
def test_a_value_means_the_same_on_both_paths(
    tmp_path: Path, others: tuple[str, ...], values: dict[str, Any], changes: dict[str, Any]
) -> None:
    plain = {"label": 1.0, "x": 0.5, "site": "a", "id": 7, "tags": ("p", "q")} | changes
    expected = Row(plain["label"], 2.0, (plain["x"],), (plain["site"], plain["id"], plain["tags"]))
    path = write(tmp_path, json.dumps(GOOD | values), *others)
    assert rows_of(cut_jsonl_blocks(found(path), SCHEMA)) == [expected, *[PLAIN_SLOW] * len(others)]


def test_keys_may_lack_come_in_any_order_and_be_unknown(tmp_path: Path) -> None:
    shuffled = json.dumps(dict(reversed(GOOD.items())) | {"other": [{"a": 1}]})
    path = write(tmp_path, shuffled, '{"w": 1, "label": 0}', end="\r\n")
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + path.read_bytes().removesuffix(b"\r\n")))
    assert rows_of(cut_jsonl_blocks(found(path), SCHEMA)) == [PLAIN, Row(0.0, 1.0, (None,), (None, None, (None,)))]


@pytest.mark.parametrize(
    ("line", "field", "message", "valid"),
    [
        ("", None, "the line is blank", "one JSON object per line"),
        ('{"label": 1', None, "is not JSON", "one JSON object per line"),
        ('{"label": 1} {"label": 0}', None, "is not JSON: Extra data", "one JSON object per line"),
        ("[1, 2]", None, "is not a JSON object", "one JSON object per line"),
        ("1,a,b", None, "is not JSON", "one JSON object per line"),
        ('{"a":' * 5000, None, "is not JSON", "one JSON object per line"),
        (json.dumps(GOOD | {"label": None}), "label", "the label is missing", "0 or 1"),
        (json.dumps(GOOD | {"label": 2}), "label", "'2' is not a label", "0 or 1"),
        (json.dumps(GOOD | {"x": "much"}), "x", "'much' is not a number", "a finite number"),
        (json.dumps(GOOD | {"site": ["a"]}), "site", "is a list", "multi_hot: true"),
        (json.dumps(GOOD | {"site": {"a": 1}}), "site", "is an object", "a text, a number"),
        (json.dumps(GOOD | {"tags": "p"}), "tags", "is not a list", "multi_hot: false"),
        (json.dumps(GOOD | {"tags": [["p"]]}), "tags", "is a list", "a text, a number"),
        (json.dumps(GOOD | {"user": 5}), "user.id", "something else than an object", '{"user": {"id": 1}}'),
        (json.dumps(GOOD | {"user.id": 5}), "user.id", "a key and of a key in an object", "one of them"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_kept(
    tmp_path: Path, line: str, field: str | None, message: str, valid: str
) -> None:
    path = write(tmp_path, json.dumps(GOOD), line, json.dumps(GOOD))
    with pytest.raises(DataError) as caught:
        rows_of(cut_jsonl_blocks(found(path), SCHEMA))
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(path), 2, field)
    assert message in caught.value.message
    assert valid in caught.value.valid
    for block_bytes in (1, 1 << 20):
        assert good_rows_of(cut_jsonl_blocks(found(path), SCHEMA, block_bytes)) == ([PLAIN] * 2, [True, False, True])


SCALARS = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=5)


@given(st.lists(st.fixed_dictionaries({"v": SCALARS | st.lists(SCALARS, max_size=2)}), min_size=1, max_size=5))
def test_the_fast_and_the_slow_reader_agree(
    tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, Any]]
) -> None:
    lines = [json.dumps({"label": 0, **found}) for found in objects]
    schema = SchemaConfig.model_validate({"categorical": [{"name": "v"}]})
    path = write(tmp_path_factory.mktemp("jsonl"), *lines)
    rows, good = good_rows_of(cut_jsonl_blocks(found(path), schema))
    write(path.parent, *lines, '{"label": 0, "v": NaN}')
    slow_rows, slow_good = good_rows_of(cut_jsonl_blocks(found(path), schema))
    assert [*rows, Row(0.0, None, (), (None,))] == slow_rows
    assert [*good, True] == slow_good
    assert good == [not isinstance(found["v"], list) for found in objects]
