"""Loading a model, whole or damaged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import dlrm
from dlrm.exported_model.load import ModelError, load_saved_model
from tests.dlrm.exported_model.conftest import Made
from tests.dlrm.exported_model.model_factory import METRICS, signed

FILES = ["model.safetensors", "config.json", "metrics.json", "encoders/encoders.json", "encoders/vocabulary-0.parquet"]


def test_a_model_loads_with_its_columns_metrics_and_weights(made: Made):
    model = dlrm.load_model(str(made.path))
    assert model.columns == ["age", "clicks", "site", "user", "tags", "items"]
    assert (model.schema.label, model.schema.weight) == ("label", "worth")
    assert model.metrics == METRICS
    assert model.config.data == made.data
    assert not model.module.training
    for name, tensor in made.plain.state_dict().items():
        assert torch.equal(model.module.state_dict()[name], tensor), name


@pytest.mark.parametrize("damage", ["cut", "emptied", "flipped", "removed"])
@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_every_damaged_file_is_one_error_naming_it(copied: Path, name: str, damage: str):
    path = copied / name
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
    elif damage == "flipped":
        # In the manifest: a letter of a sum. Elsewhere any will do.
        place = content.index(b'"sha256":') + 20 if name == "manifest.json" else len(content) // 2
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    else:
        path.write_bytes(content[:-7] if damage == "cut" else b"")
    with pytest.raises(ModelError) as caught:
        load_saved_model(copied)
    text = str(caught.value)
    # A sum that is wrong is that of the file it is for.
    assert text.startswith(str(copied if (name, damage) == ("manifest.json", "flipped") else path)), text
    assert "\n" not in text


def test_any_flipped_byte_of_the_weights_is_noticed(copied: Path):
    path = copied / "model.safetensors"
    content = path.read_bytes()
    for place in range(0, len(content), len(content) // 25):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with pytest.raises(
            ModelError, match=r"model\.safetensors: has changed since it was written: its SHA-256 differs"
        ):
            load_saved_model(copied)


def test_the_card_may_be_edited(copied: Path):
    (copied / "MODEL_CARD.md").write_text("ours")
    load_saved_model(copied)


def test_the_directory_of_a_run_names_its_model(made: Made):
    with pytest.raises(ModelError, match=f"is the directory of a run; its model is {made.path}"):
        load_saved_model(made.path.parent)


def test_a_directory_that_is_not_there_is_one_error(tmp_path: Path):
    with pytest.raises(ModelError, match="nowhere: no such directory"):
        load_saved_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"manifest\.json: is missing: the model is incomplete"):
        load_saved_model(tmp_path)


@pytest.mark.parametrize(
    ("fields", "file"),
    [
        ({"model": {"embedding_dim": 3}}, "config.json"),
        ({"num_dense": "x"}, "config.json"),
        ({"surplus": 1}, "config.json"),
        ({"num_dense": 7}, "model.safetensors"),
        ({"table_rows": {"site": 3}}, "model.safetensors"),
    ],
)
def test_a_configuration_of_another_program_is_one_error_naming_the_file(
    copied: Path, fields: dict[str, Any], file: str
):
    with pytest.raises(ModelError) as caught:
        load_saved_model(signed(copied, **fields))
    assert str(caught.value).startswith(f"{copied / file}: cannot be read")
    assert "\n" not in str(caught.value)


def test_weights_of_another_model_are_one_error_naming_the_file(copied: Path):
    path = copied / "model.safetensors"
    weights = load_file(path)
    save_file({name: tensor for name, tensor in weights.items() if "site" not in name}, path)
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot be read.*Missing key.*site"):
        load_saved_model(signed(copied))


def test_importing_the_package_imports_no_torch_and_loading_no_torchrec(made: Made):
    program = """
import sys, json, dlrm
before = "torch" in sys.modules
model = dlrm.load_model(sys.argv[1])
import dlrm.programs.predict, dlrm.programs.evaluate
print(json.dumps([before, "torch" in sys.modules, "torchrec" in sys.modules, "fbgemm_gpu" in sys.modules]))
"""
    ran = subprocess.run([sys.executable, "-c", program, str(made.path)], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [False, True, False, False]
