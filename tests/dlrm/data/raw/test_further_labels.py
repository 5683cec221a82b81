"""Labels of further tasks in files: those that are no number of a label make a bad row, without a warning of numpy."""

import warnings
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks


def test_a_label_beyond_float32_is_a_bad_row_and_no_warning(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("click,seconds,x\n1,2.5,0\n0,1e39,0\n1,,0\n")
    schema = {
        "label": "click",
        "further_labels": [{"name": "seconds", "kind": "regression"}],
        "dense": [{"name": "x"}],
    }
    config = DataConfig.model_validate({"train": [str(path)], "format": "csv", "schema": schema})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (block,) = cut_blocks(config, find_files([str(path)], "data.train", None, Path()))
        parsed = block.parse(True)
    assert parsed.good is not None
    assert parsed.good.tolist() == [True, False, True]
    assert "1e39" in str(parsed.faults[0])
