"""The check of the files of a job before its run begins."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.report.job_files import check_files
from tests.dlrm.data.packed_files import prepare_in_cache


def test_of_parquet_files_only_the_footer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"label": [0, 1] * 500, "x": [0.5, 1.5] * 500}), path, row_group_size=100)
    content = path.read_bytes()
    num_footer_bytes = 8 + int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:4] + bytes(len(content) - 4 - num_footer_bytes) + content[-num_footer_bytes:])
    config = {"train": [str(path)], "format": "parquet", "schema": {"dense": [{"name": "x"}]}}
    check_files(DataConfig.model_validate(config))
    with pytest.raises(DataError, match="there is no such column") as caught:
        check_files(DataConfig.model_validate({**config, "schema": {"dense": [{"name": "y"}]}}))
    assert (caught.value.file, caught.value.field) == (str(path), "y")
    path.write_bytes(content[:-4])
    with pytest.raises(DataError, match="is a truncated Parquet file"):
        check_files(DataConfig.model_validate(config))


def prepare(config: DataConfig) -> None:
    directory = Path(config.train[0]).parent
    prepare_in_cache(config, directory)


@pytest.mark.parametrize("check", [check_files, prepare])
def test_evaluation_files_that_spell_the_label_otherwise_are_refused(
    tmp_path: Path, check: Callable[[DataConfig], None]
) -> None:
    for name, labels in {"train": (">50K", "<=50K"), "eval": (">50K.", "<=50K.")}.items():
        rows = "".join(f"{labels[row % 2]},{row}\n" for row in range(100))
        (tmp_path / f"{name}.csv").write_text(f"label,x\n{rows}")
    document = {
        "train": [str(tmp_path / "train.csv")],
        "eval": [str(tmp_path / "eval.csv")],
        "format": "csv",
        "schema": {"positive": ">50K", "dense": [{"name": "x"}]},
    }
    config = DataConfig.model_validate(document)
    with pytest.raises(DataError) as caught:
        check(config)
    assert str(caught.value) == (
        "data.schema.positive: no evaluation row has '>50K' in the label column label "
        "(valid: a value that some rows have and others lack; found '<=50K.', '>50K.')"
    )
