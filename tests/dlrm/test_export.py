"""Directories that are no model."""

import json
from pathlib import Path

import pytest
from safetensors.torch import save_file

from dlrm.config import ModelConfig
from dlrm.export import CONFIG, WEIGHTS, ModelError, load_saved_model

GOOD = {
    "model": ModelConfig(embedding_dim=4, bottom_mlp=[4], top_mlp=[1]).model_dump(),
    "num_dense": 2,
    "table_rows": {"a": 3},
    "data": {"format": "synthetic"},
    "train_label_rate": 0.25,
}


@pytest.mark.parametrize(
    "config",
    ["", "{", "{}", json.dumps({**GOOD, "model": {"embedding_dim": 3}}), json.dumps({**GOOD, "num_dense": "x"})],
)
def test_a_damaged_configuration_is_one_error_naming_the_directory(tmp_path: Path, config: str):
    (tmp_path / CONFIG).write_text(config)
    with pytest.raises(ModelError, match="no model that can be read") as caught:
        load_saved_model(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cut_or_foreign_weights_are_one_error_naming_the_directory(tmp_path: Path):
    (tmp_path / CONFIG).write_text(json.dumps(GOOD))
    (tmp_path / WEIGHTS).write_bytes(b"\x10\x00")
    with pytest.raises(ModelError, match="SafetensorError"):
        load_saved_model(tmp_path)
    save_file({}, tmp_path / WEIGHTS)
    with pytest.raises(ModelError, match="Missing key"):
        load_saved_model(tmp_path)


def test_a_directory_that_is_not_there_is_one_error(tmp_path: Path):
    with pytest.raises(ModelError, match="No such file"):
        load_saved_model(tmp_path / "nowhere")
