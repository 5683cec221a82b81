import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlrm.config import DataConfig
from dlrm.model import PlainModel
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.exported_model.model_factory import SIZES, made_model

PROGRAM_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)


@pytest.fixture(autouse=True)
def _signals_stay_as_they_were() -> Iterator[None]:
    """Programs that run in this process set them for themselves, and a broken pipe would end all tests behind them."""
    before = {number: signal.getsignal(number) for number in PROGRAM_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


SCHEMA = {
    "weight": "worth",
    "dense": [{"name": "age"}, {"name": "clicks", "transform": "log"}],
    "categorical": [
        {"name": "site"},
        {"name": "user", "type": "integer"},
        {"name": "tags", "multi_hot": True},
        {"name": "items", "type": "integer", "multi_hot": True},
    ],
}
MADE_MODEL = {**SIZES, "embedding_dim": 8, "bottom_mlp": [8, 8], "table_dims": {"user": 4, "i*": 4}}
"""Model with tables of two dimensions."""
HEADER = "label,worth,age,clicks,site,user,tags,items"


def csv_rows(num_rows: int, seed: int = 0) -> list[str]:
    """Rows of every kind of column, some values missing and some rare."""
    random = np.random.default_rng(seed)
    rows: list[str] = []
    for row in range(num_rows):
        tags = "|".join(f"t{tag}" for tag in random.integers(0, 9, random.integers(0, 4)))
        items = "|".join(map(str, random.integers(-3, 5, random.integers(0, 3))))
        age = "" if row % 7 == 0 else f"{random.normal(40, 10):.2f}"
        site = "" if row % 11 == 0 else f"s{random.integers(0, 12)}"
        rows.append(f"{row % 2},{random.random():.3f},{age},{random.integers(0, 99)},{site},{row % 23},{tags},{items}")
    return rows


def write_csv(path: Path, rows: list[str], header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@dataclass(frozen=True)
class Made:
    """A model that was trained on CSV, and what it was made from."""

    path: Path
    plain: PlainModel
    rows: Path
    """A CSV file."""
    packed: Path
    """The same rows, prepared."""
    data: DataConfig


def made_of_csv(directory: Path, **fields: Any) -> Made:
    directory.mkdir(exist_ok=True)
    rows = write_csv(directory / "rows.csv", csv_rows(300))
    data = DataConfig.model_validate({"train": [str(rows)], "format": "csv", "schema": SCHEMA})
    packed = prepare_in_cache(data, directory)
    return Made(directory / "model", made_model(directory / "model", data, packed, **fields), rows, packed, data)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_of_csv(tmp_path_factory.mktemp("made"), model=MADE_MODEL)


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Path:
    """A copy of the model, to be spoilt."""
    return Path(shutil.copytree(made.path, tmp_path / "model"))
