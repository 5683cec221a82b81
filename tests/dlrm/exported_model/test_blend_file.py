"""The file in which a blend is handed over."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dlrm.config import ModelConfig
from dlrm.data.rows import DataSchema
from dlrm.exported_model.blend_file import BlendReport, RefinedOutput, read_blend, write_blend
from dlrm.model import FirstOrder
from tests.dlrm.yardsticks.memory_rows import SITE, TAGS

SCHEMA = DataSchema(3, (SITE, TAGS))


def test_a_blend_is_read_bit_for_bit_as_it_was_written(tmp_path: Path) -> None:
    first_order = FirstOrder(3, {"site": 40, "tags": 12}, "mean", 0.3)
    drawn = {name: torch.randn(weights.shape) for name, weights in first_order.state_dict().items()}
    first_order.load_state_dict(drawn, assign=True)
    metrics = {"auc": None, "log_loss": 0.1 + 0.2}
    report = BlendReport(message="both", share=0.3, num_train_rows=7, metrics=metrics)
    write_blend(tmp_path / "blend", RefinedOutput(report, first_order))
    read = read_blend(tmp_path / "blend", ModelConfig(pooling="mean"), SCHEMA)
    assert read.report == report
    assert read.first_order is not None
    assert read.first_order.share == 0.3
    arguments = torch.randn(2, 3), torch.tensor([5, 0, 1, 2, 3]), torch.tensor([[1, 1], [0, 3]])
    assert read.first_order(*arguments).equal(first_order(*arguments))


@pytest.mark.parametrize("share", [None, 0.0])
def test_a_model_that_is_left_alone_has_a_report_without_weights(tmp_path: Path, share: float | None) -> None:
    report = BlendReport(message="no blend", share=share)
    write_blend(tmp_path / "blend", RefinedOutput(report, None))
    assert read_blend(tmp_path / "blend", ModelConfig(), SCHEMA) == RefinedOutput(report, None)


def test_a_file_without_a_report_is_refused(tmp_path: Path) -> None:
    save_file({"bias": torch.zeros(1)}, tmp_path / "blend")
    with pytest.raises(ValueError, match="JSON"):
        read_blend(tmp_path / "blend", ModelConfig(), SCHEMA)
