"""Properties of the dense part of every architecture."""

from collections import Counter

import pytest
import torch
from torch import nn

from dlrm.config.model import NORMALIZED
from dlrm.model import make_dense_part
from dlrm.model.norm import LayerNorm
from tests.dlrm.model.small_models import SMALL_MODELS

COLUMNS = [(3, 2), (0, 2), (0, 1), (3, 0)]
"""N and F."""

every = pytest.mark.parametrize("architecture", SMALL_MODELS)
of_all_columns = pytest.mark.parametrize(("num_dense", "num_features"), COLUMNS, ids=str)


@every
@of_all_columns
def test_initial_weights_are_a_function_of_the_seed_and_the_shapes(
    architecture: str, num_dense: int, num_features: int
):
    def weights(seed: int) -> torch.Tensor:
        model = make_dense_part(SMALL_MODELS[architecture], num_dense, num_features, seed)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    torch.manual_seed(1)
    first = weights(1)
    torch.manual_seed(2)
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))


@every
@of_all_columns
def test_every_parameter_is_one_of_a_layer_called_once_with_the_samples_first(
    architecture: str, num_dense: int, num_features: int
):
    model = make_dense_part(SMALL_MODELS[architecture], num_dense, num_features, seed=0)
    calls: Counter[str] = Counter()
    of_layers: set[str] = set()

    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear | LayerNorm):
            of_layers |= {f"{name}.{own}" for own, _ in layer.named_parameters()}
            assert isinstance(layer, LayerNorm) or layer.in_features > 0, name

            def noted(_: nn.Module, inputs: tuple[torch.Tensor, ...], name: str = name) -> None:
                calls[name] += 1
                assert [tensor.shape[0] for tensor in inputs] == [7], name
                # K-FAC has factors of one row a sample.
                assert architecture in NORMALIZED or inputs[0].dim() == 2, name

            layer.register_forward_pre_hook(noted)
    logits = model(torch.randn(7, num_dense), torch.randn(7, num_features, 4, requires_grad=True))
    logits.sum().backward()

    assert logits.shape == (7,)
    assert any(".gain" in name for name in of_layers) == (architecture in NORMALIZED)
    assert of_layers == {name for name, _ in model.named_parameters()}
    assert set(calls.values()) == {1}
    assert {name.rpartition(".")[0] for name in of_layers} == set(calls)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name


@every
@of_all_columns
def test_bf16_autocast_changes_rounding_alone(architecture: str, num_dense: int, num_features: int):
    model = make_dense_part(SMALL_MODELS[architecture], num_dense, num_features, seed=0)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(64, num_dense, generator=generator)
    pooled = torch.randn(64, num_features, 4, generator=generator)
    exact = model(dense, pooled)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(dense, pooled)
    assert not torch.equal(rounded.float(), exact)
    assert (rounded.float() - exact).norm() <= 0.03 * exact.norm()


@every
def test_a_model_of_nothing_is_refused(architecture: str):
    with pytest.raises(ValueError, match="nothing to predict from"):
        make_dense_part(SMALL_MODELS[architecture], 0, 0, seed=0)
