"""Forward and backward pass of the newer architectures against their papers' formulas, in float64."""

from collections.abc import Callable, Mapping

import pytest
import torch

from dlrm.model import make_dense_part
from dlrm.model.deepfm import sum_pair_products
from tests.dlrm.model.small_models import SMALL_MODELS, make_small_model

Weights = Mapping[str, torch.Tensor]
DIM, EPSILON = 4, 1e-5
COLUMNS = pytest.mark.parametrize(("num_dense", "num_features"), [(3, 2), (0, 2), (0, 1), (3, 0)], ids=str)


def layer(weights: Weights, name: str, inputs: torch.Tensor) -> torch.Tensor:
    bias = weights.get(f"{name}.bias", torch.zeros((), dtype=torch.float64))
    return inputs @ weights[f"{name}.weight"].T + bias


def perceptron(weights: Weights, name: str, inputs: torch.Tensor, *, is_last_activated: bool = False) -> torch.Tensor:
    names = sorted({key.rsplit(".", 1)[0] for key in weights if key.startswith(f"{name}.layers.")})
    for number, one in enumerate(names, start=1):
        inputs = layer(weights, one, inputs)
        inputs = inputs.clamp(min=0) if number < len(names) or is_last_activated else inputs
    return inputs


def normalise(weights: Weights, name: str, inputs: torch.Tensor) -> torch.Tensor:
    """Layer normalization of each row [c, H] or [c, V, H], with gains of its own elements, or shared ones."""
    centred = inputs - inputs.mean(dim=-1, keepdim=True)
    normal = centred / (centred.square().mean(dim=-1, keepdim=True) + EPSILON).sqrt()
    gain, bias = weights[f"{name}.gain"], weights[f"{name}.bias"]
    if len(gain) > inputs.shape[-1]:
        gain, bias = gain.view(inputs.shape[1:]), bias.view(inputs.shape[1:])
    return gain * normal + bias


def list_vectors(weights: Weights, dense: torch.Tensor, pooled: torch.Tensor) -> list[torch.Tensor]:
    bottom = [perceptron(weights, "bottom", dense, is_last_activated=True)] if dense.shape[1] else []
    return [*bottom, *pooled.unbind(dim=1)]


def compute_deepfm(weights: Weights, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    vectors = list_vectors(weights, dense, pooled)
    logit = perceptron(weights, "top", torch.cat([vector[:, 1:] for vector in vectors], dim=1)).squeeze(1)
    logit = logit + sum(vector[:, 0] for vector in vectors)
    if dense.shape[1]:
        logit = logit + dense @ weights["linear.weight"][0]
    for i, one in enumerate(vectors):
        for other in vectors[:i]:
            logit = logit + (one[:, 1:] * other[:, 1:]).sum(dim=1)
    return logit


def compute_gdcn(weights: Weights, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    x = x0 = torch.cat(list_vectors(weights, dense, pooled), dim=1)
    for number in range(2):
        matrix = weights[f"cross.u.{number}.weight"] @ weights[f"cross.v.{number}.weight"]
        gate = weights[f"cross.gate_u.{number}.weight"] @ weights[f"cross.gate_v.{number}.weight"]
        crossed = x @ matrix.T + weights[f"cross.u.{number}.bias"]
        x = x0 * crossed / (1 + (-(x @ gate.T)).exp()) + x
    return perceptron(weights, "top", x).squeeze(1)


def compute_finalmlp(weights: Weights, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    x = torch.cat(list_vectors(weights, dense, pooled), dim=1)
    gated = [2 * x / (1 + (-perceptron(weights, f"gates.{number}", x)).exp()) for number in range(2)]
    one, two = (perceptron(weights, f"streams.{number}", gated[number], is_last_activated=True) for number in range(2))
    logit = weights["outputs.0.bias"] + one @ weights["outputs.0.weight"][0] + two @ weights["outputs.1.weight"][0]
    for head in range(2):
        part = slice(3 * head, 3 * head + 3)
        logit = logit + torch.einsum("ci,ij,cj->c", one[:, part], weights[f"heads.{head}.weight"], two[:, part])
    return logit


def compute_masknet(weights: Weights, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    vectors = torch.stack(list_vectors(weights, dense, pooled), dim=1)
    x, normal = vectors.flatten(1), normalise(weights, "norm", vectors).flatten(1)
    blocks = [
        normalise(
            weights,
            f"blocks.{number}.norm",
            layer(weights, f"blocks.{number}.layer", perceptron(weights, f"blocks.{number}.mask", x) * normal),
        ).clamp(min=0)
        for number in range(2)
    ]
    return perceptron(weights, "top", torch.cat(blocks, dim=1)).squeeze(1)


def compute_wukong(weights: Weights, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    x = torch.stack(list_vectors(weights, dense, pooled), dim=1)  # [c, V, D]
    for number in range(2):
        name = f"layers.{number}"
        fm = torch.einsum("cvd,cud,ku->cvk", x, x, weights[f"{name}.y.weight"])
        made = perceptron(weights, f"{name}.mlp", normalise(weights, f"{name}.products_norm", fm.flatten(1)))
        lcb = torch.einsum("nv,cvd->cnd", weights[f"{name}.w.weight"], x)
        residual = x
        if f"{name}.r.weight" in weights:
            residual = torch.einsum("nv,cvd->cnd", weights[f"{name}.r.weight"], x)
        x = normalise(weights, f"{name}.norm", torch.cat([made.view(-1, 2, DIM), lcb], dim=1) + residual)
    return perceptron(weights, "top", x.flatten(1)).squeeze(1)


FORMULAS: dict[str, Callable[[Weights, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "deepfm": compute_deepfm,
    "gdcn": compute_gdcn,
    "finalmlp": compute_finalmlp,
    "masknet": compute_masknet,
    "wukong": compute_wukong,
}


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


def make_model(architecture: str, num_dense: int, num_features: int) -> torch.nn.Module:
    """Make a small model in float64, with weights that are all drawn: gains and biases begin at 1 and 0."""
    model = make_dense_part(SMALL_MODELS[architecture], num_dense, num_features, seed=1).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@COLUMNS
@pytest.mark.parametrize("architecture", FORMULAS)
def test_logits_and_gradients_follow_the_formulas_of_the_paper(architecture: str, num_dense: int, num_features: int):
    model = make_model(architecture, num_dense, num_features)
    weights = {name: tensor.clone().requires_grad_() for name, tensor in model.state_dict().items()}
    dense, pooled = draw(7, num_dense), draw(7, num_features, DIM).requires_grad_()
    upstream = draw(7)

    logits, expected = model(dense, pooled), FORMULAS[architecture](weights, dense, pooled)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)
    inputs = [pooled] if num_features else []
    found = torch.autograd.grad(logits @ upstream, [*model.parameters(), *inputs])
    wanted = torch.autograd.grad(
        expected @ upstream, [*(weights[name] for name, _ in model.named_parameters()), *inputs]
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_deepfm_without_its_deep_part_is_a_factorization_machine():
    model = make_model("deepfm", 0, 3)
    with torch.no_grad():
        for parameter in model.get_submodule("top").parameters():
            parameter.zero_()
    pooled = draw(7, 3, DIM)
    weights, v = pooled[:, :, 0], pooled[:, :, 1:]
    products = torch.einsum("cid,cjd->cij", v, v)
    expected = weights.sum(dim=1) + torch.triu(products, diagonal=1).sum(dim=(1, 2))
    torch.testing.assert_close(model(draw(7, 0), pooled), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sum_pair_products(v[:, :1]), torch.zeros(7, dtype=torch.float64))


def test_gdcn_with_gates_of_one_is_dcn_v2():
    gated, plain = make_model("gdcn", 3, 2), make_model("dcn_v2", 3, 2)
    weights = gated.state_dict()
    for number in range(2):
        # Gates of 1/2 on twice the cross terms: one exactly.
        weights[f"cross.gate_u.{number}.weight"].zero_()
    plain.load_state_dict({name: tensor.clone() for name, tensor in weights.items() if "gate" not in name})
    for number in range(2):
        for kind in ("weight", "bias"):
            weights[f"cross.u.{number}.{kind}"] *= 2
    dense, pooled = draw(7, 3), draw(7, 2, DIM)
    assert torch.equal(gated(dense, pooled), plain(dense, pooled))


def test_finalmlp_with_open_gates_and_no_heads_is_the_sum_of_two_perceptrons():
    model = make_model("finalmlp", 3, 2)
    with torch.no_grad():
        for part in ("gates", "heads"):
            for parameter in model.get_submodule(part).parameters():
                parameter.zero_()
    weights, dense, pooled = model.state_dict(), draw(7, 3), draw(7, 2, DIM)
    x = torch.cat(list_vectors(weights, dense, pooled), dim=1)
    one, two = (perceptron(weights, f"streams.{number}", x, is_last_activated=True) for number in range(2))
    expected = layer(weights, "outputs.0", one) + layer(weights, "outputs.1", two)
    torch.testing.assert_close(model(dense, pooled), expected.squeeze(1), rtol=1e-12, atol=1e-12)


def test_a_mask_of_ones_leaves_a_normalised_perceptron():
    model = make_model("masknet", 0, 2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".mask.layers.1" in name:
                parameter.fill_(float(name.endswith("bias")))
    weights, pooled = model.state_dict(), draw(7, 2, DIM)
    normal = normalise(weights, "norm", pooled).flatten(1)
    blocks = [
        normalise(weights, f"blocks.{number}.norm", layer(weights, f"blocks.{number}.layer", normal)).clamp(min=0)
        for number in range(2)
    ]
    expected = perceptron(weights, "top", torch.cat(blocks, dim=1)).squeeze(1)
    torch.testing.assert_close(model(draw(7, 0), pooled), expected, rtol=1e-12, atol=1e-12)


def test_at_full_rank_a_factorization_machine_of_wukong_has_all_products():
    config = make_small_model("wukong", wukong_layers=1, wukong_rank=100)
    model = make_dense_part(config, 0, 3, seed=1).double()
    weights = model.state_dict()
    assert weights["layers.0.y.weight"].shape == (3, 3), "more products than vectors add nothing"
    weights["layers.0.y.weight"].copy_(torch.eye(3))
    seen: list[torch.Tensor] = []
    model.get_submodule("layers.0.products_norm").register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    pooled = draw(7, 3, DIM)
    model(draw(7, 0), pooled)
    torch.testing.assert_close(seen[0].view(7, 3, 3), torch.bmm(pooled, pooled.transpose(1, 2)))
