import gzip
from pathlib import Path

import pytest

from cli.demo.job import make_criteo_job
from cli.local.errors import BadInputError
from dlrm.config import parse_job


def test_rows_of_a_compressed_file_are_counted_as_those_of_a_plain_one(tmp_path: Path) -> None:
    rows = b"\n" * 10_000
    (tmp_path / "day.tsv").write_bytes(rows)
    # gzip files may be joined.
    (tmp_path / "day.gz").write_bytes(gzip.compress(rows[:6000]) + gzip.compress(rows[6000:]))
    plain, compressed = (parse_job(make_criteo_job(tmp_path / name)) for name in ("day.tsv", "day.gz"))
    assert plain.batch.global_size == compressed.batch.global_size == 256
    assert compressed.data.train == ["day.gz"]


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:20] + b"\xff" * 20 + data[40:]])
def test_a_damaged_file_is_named(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    (tmp_path / "day.gz").write_bytes(damage(gzip.compress(bytes(range(256)) * 200)))
    with pytest.raises(BadInputError, match=r"day\.gz: not a complete gzip file"):
        make_criteo_job(tmp_path / "day.gz")
