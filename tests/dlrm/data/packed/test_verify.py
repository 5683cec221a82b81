from pathlib import Path

import pytest

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import LABELS, META, PackedMeta, read_meta
from dlrm.data.packed.open import verify
from tests.dlrm.data.prepare.table_strategies import MadeTable, data_config, prepare_all

SCHEMA = SchemaConfig(dense=[DenseColumn(name="d")], categorical=[CategoricalColumn(name="c")])
COLUMNS = {"label": [0, 1] * 50, "d": [float(i) for i in range(100)], "c": ["a", "b"] * 50}


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    rows = MadeTable(SCHEMA, COLUMNS).write(tmp_path / "rows")
    prepare_all(data_config(SCHEMA, [rows]), tmp_path / "packed")
    return tmp_path / "packed"


def report_shares(directory: Path, meta: PackedMeta) -> list[float]:
    shares: list[float] = []
    verify(directory, meta, 2, shares.append)
    return shares


def test_what_was_written_is_found_whole(packed: Path) -> None:
    shares = report_shares(packed, read_meta(packed))
    assert max(shares) == pytest.approx(1.0)


def test_one_changed_byte_is_found(packed: Path) -> None:
    path = packed / "train" / LABELS
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"labels\.bin: has changed since it was written.*prepare the data again"):
        report_shares(packed, read_meta(packed))


@pytest.mark.parametrize("name", ["eval/labels.bin", "encoders/encoders.json"])
def test_a_file_that_is_gone_is_named(packed: Path, name: str) -> None:
    (packed / name).unlink()
    assert (packed / META).exists()
    with pytest.raises(DataError, match=f"{name}: not readable"):
        report_shares(packed, read_meta(packed))
