"""Which encoders others extend, and which not."""

import shutil
from pathlib import Path

import pytest

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS, compute_rows_checksum, read_meta
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.data.prepare.fit import check_base, check_extends, open_base
from tests.dlrm.data.prepare.table_strategies import EventRecorder, MadeTable, data_config, prepare_all

D, E = DenseColumn(name="d"), DenseColumn(name="e", transform="log")
B, C = CategoricalColumn(name="b"), CategoricalColumn(name="c", type="integer")
SCHEMA = SchemaConfig(dense=[D, E], categorical=[B, C])


def table(start: int, schema: SchemaConfig = SCHEMA, num_rows: int = 40) -> MadeTable:
    """Rows whose values depend on `start`: later ones hold other values."""
    numbers = range(start, start + num_rows)
    columns = {
        "label": [number % 2 for number in numbers],
        "d": [float(number) for number in numbers],
        "e": [float(number % 5) for number in numbers],
        "b": [f"b{number // 8}" for number in numbers],
        "c": [number // 10 for number in numbers],
    }
    return MadeTable(schema, columns)


def packed(directory: Path, start: int, base: Encoders | None = None, **fields: object) -> Path:
    rows = table(start).write(directory.with_name(f"{directory.name}.rows"))
    prepare_all(data_config(SCHEMA, [rows], **fields), directory, base=base)
    return directory


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(tmp_path_factory.mktemp("old") / "packed", 0)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SchemaConfig(dense=[D], categorical=[B, C]), r"data\.schema\.dense: lacks e, which the base has"),
        (SchemaConfig(dense=[D, E], categorical=[B]), r"data\.schema\.categorical: lacks c"),
        (SchemaConfig(dense=[D, E, DenseColumn(name="f")], categorical=[B, C]), "has f, which the base does not have"),
        (SchemaConfig(dense=[E, D], categorical=[B, C]), "has e where the base has d: the order differs"),
        (
            SchemaConfig(dense=[D, DenseColumn(name="e", transform="none")], categorical=[B, C]),
            "e is none here and log in the base",
        ),
        (
            SchemaConfig(dense=[D, E], categorical=[B, CategoricalColumn(name="c")]),
            "c is string here and integer in the base",
        ),
        (
            SchemaConfig(dense=[D, E], categorical=[CategoricalColumn(name="b", multi_hot=True), C]),
            "b is string, multi-hot here and string in the base",
        ),
    ],
)
def test_other_columns_are_named_with_their_fault(old: Path, schema: SchemaConfig, message: str) -> None:
    config = DataConfig(train=["rows.parquet"], format="parquet", schema=schema)
    with pytest.raises(DataError, match=rf"{message}.* \(valid: .* anew, without run\.warm_start"):
        check_base(config, open_base(old))


def test_an_extension_extends_what_it_was_made_from_and_what_that_was_made_from(old: Path, tmp_path: Path) -> None:
    newer = packed(tmp_path / "newer", 30, open_base(old))
    newest = packed(tmp_path / "newest", 60, open_base(newer))
    for directory in (old, newer, newest):
        check_extends(open_base(directory), open_base(old), directory, "")
    check_extends(open_base(newest), open_base(newer), newest, "")
    with pytest.raises(DataError, match=f"{newer}, categorical: b has other ids than in the base that it must extend"):
        check_extends(open_base(newer), open_base(newest), newer, "")


def test_rows_prepared_alone_extend_nothing(old: Path, tmp_path: Path) -> None:
    alone = packed(tmp_path / "alone", 30)
    with pytest.raises(DataError, match=rf"{alone}, dense: d is encoded with other statistics .*\(valid: this\)"):
        check_extends(open_base(alone), open_base(old), alone, "this")


@pytest.mark.parametrize("vocabulary", [{"hash_size": 9}, {"columns": {"c": {"hash_size": 9}}}])
def test_hashed_values_extend_the_same_table_alone(old: Path, tmp_path: Path, vocabulary: dict[str, object]) -> None:
    hashed = packed(tmp_path / "hashed", 0, vocabulary=vocabulary)
    check_extends(open_base(hashed), open_base(hashed), hashed, "")
    with pytest.raises(DataError, match="has other ids"):
        check_extends(open_base(hashed), open_base(old), hashed, "")


def test_cache_entries_differ_by_their_base(old: Path, tmp_path: Path) -> None:
    rows = table(30).write(tmp_path / "rows")

    def entry(base: Encoders | None) -> Path:
        config = data_config(SCHEMA, [rows])
        cache = tmp_path / "cache"
        return find_or_prepare(
            config, None, cache, base_directory=Path(), num_threads=1, on_event=EventRecorder(), base=base
        )

    alone, extended = entry(None), entry(open_base(old))
    assert alone != extended
    assert entry(open_base(old)) == extended
    check_extends(Encoders.load(extended / ENCODERS), open_base(old), extended, "")
    by_hand = packed(tmp_path / "by_hand", 30, open_base(old))
    assert compute_rows_checksum(read_meta(extended)) == compute_rows_checksum(read_meta(by_hand))
    assert entry(open_base(extended)) != extended


def test_encoders_that_name_files_elsewhere_are_refused(old: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(old / ENCODERS, tmp_path / "copy" / ENCODERS))
    secret = shutil.move(copy / "vocabulary-0.parquet", tmp_path / "vocabulary-0.parquet")
    text = (copy / "encoders.json").read_text()
    for name in (str(secret), "../../vocabulary-0.parquet"):
        (copy / "encoders.json").write_text(text.replace("vocabulary-0.parquet", name))
        with pytest.raises(DataError, match="contains no encoders to extend"):
            open_base(tmp_path / "copy")
