"""Rows of so many multi-hot columns that a process may not have all their files open as it starts."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dlrm.config import CategoricalColumn, SchemaConfig
from dlrm.data.packed.open import open_packed
from dlrm.data.rows import Feature
from tests.dlrm.data.packed_files import random_rows, write_packed
from tests.dlrm.data.prepare.table_strategies import MadeTable, data_config, prepare_all

NUM_COLUMNS = 150
LISTS = [Feature(f"c{number}", 9, is_multi_hot=True) for number in range(NUM_COLUMNS)]
OPENING = """
import resource, sys
from pathlib import Path
from dlrm.data.packed.open import open_packed
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
open_packed(Path(sys.argv[1]))
"""


@pytest.fixture
def few_files() -> Iterator[None]:
    """This process may have 200 files open, and may allow itself more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_rows_of_many_columns_are_prepared_and_read_with_any_limit_of_open_files(tmp_path: Path) -> None:
    columns = [CategoricalColumn(name=feature.name, multi_hot=True) for feature in LISTS]
    schema = SchemaConfig(dense=[{"name": "d"}], categorical=columns)  # pyright: ignore[reportArgumentType]
    values = {"label": [0, 1] * 50, "d": [1.0] * 100} | {feature.name: [["a", "b"]] * 100 for feature in LISTS}
    table = MadeTable(schema, values).write(tmp_path / "rows")
    prepare_all(data_config(schema, [table]), tmp_path / "packed")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 200
    rows = open_packed(tmp_path / "packed").train.read(np.array([0, 1]))
    assert rows.ids.lengths.shape == (NUM_COLUMNS, 2)


def test_more_files_than_may_ever_be_open_are_one_error(tmp_path: Path) -> None:
    write_packed(tmp_path, random_rows(20, LISTS), random_rows(20, LISTS), LISTS)
    ended = subprocess.run([sys.executable, "-c", OPENING, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "cannot be opened in addition to the others: too many files are open (valid: fewer" in ended.stderr
