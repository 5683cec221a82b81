"""The file of a model's weights, filled in place."""

import errno
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from dlrm.exported_model.weights_file import map_new_weights
from tests.dlrm.exported_model.full_disk import files_of_at_most

SHAPES = st.dictionaries(st.text(min_size=1), st.lists(st.integers(0, 5), max_size=3), max_size=6)


@given(shapes=SHAPES.filter(lambda shapes: "__metadata__" not in shapes), seed=st.integers(0, 99))
def test_what_is_written_to_the_tensors_is_what_safetensors_reads(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, list[int]], seed: int
):
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    generator = torch.Generator().manual_seed(seed)
    expected = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    weights = map_new_weights(path, shapes)
    for name, tensor in weights.tensors.items():
        tensor.copy_(expected[name])
        weights.release()
    found = load_file(path)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_a_full_disk_is_an_error_before_anything_is_written_to_the_tensors(tmp_path: Path):
    with files_of_at_most(1000), pytest.raises(OSError, match="File too large") as caught:
        map_new_weights(tmp_path / "model.safetensors", {"a": [10_000, 16]})
    assert caught.value.errno == errno.EFBIG
