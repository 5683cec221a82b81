"""Moments against gradients sample by sample, and group by group, in float64."""

import math
from dataclasses import replace

import pytest
import torch

from dlrm.config import ModelConfig, MomentsConfig
from sharding.jagged import SequenceShape
from tests.cases import list_cases
from tests.distributed.measure_moments import MeasuredMoments, MomentsSetting, compute_sample_gradients, measure_moments
from tests.dlrm.model.small_models import TASKS, make_small_model
from tests.rank_pool.pool import RankPools

SHARING = {**TASKS["task_sharing"], "tower_mlp": []}
MODELS = {
    "dlrm": ModelConfig(embedding_dim=8, bottom_mlp=[12, 8], top_mlp=[10, 1]),
    "dcn_v2": ModelConfig(
        architecture="dcn_v2", embedding_dim=8, bottom_mlp=[12, 8], top_mlp=[10, 1], cross_layers=2, cross_rank=4
    ),
    "masknet": make_small_model("masknet"),
    "wukong": make_small_model("wukong"),
    "tasks": make_small_model("dlrm", tasks=TASKS["tasks"], task_sharing=SHARING, top_mlp=[10, 1]),
    "din": make_small_model("dlrm", attention={"kind": "din", "hidden": [6, 4]}),
    "transformer": make_small_model("dlrm", attention={"kind": "transformer", "num_layers": 2, "hidden": [10]}),
    "narrow tables": make_small_model(
        "dlrm", embedding_dim=8, bottom_mlp=[6, 8], attention={"kind": "din", "hidden": [6]}, table_dims={"t[12]": 4}
    ),
    "hstu": make_small_model("dlrm", attention={"kind": "hstu", "num_layers": 2}),
}
SEQUENCES = (SequenceShape(1, 5), SequenceShape(0, 3))
"""Sequences of the models with attention."""
ALL = MomentsConfig(estimator="exact", fraction=1.0)
SHARE = MomentsConfig(estimator="exact", fraction=0.5)
GROUPS = MomentsConfig(estimator="groups", num_groups=4)
WHOLE = MomentsSetting(MODELS["dlrm"], ALL, global_size=72, num_valid=72, chunk_size=16, dtype=torch.float64)
LAST = replace(WHOLE, num_valid=47, is_weighted=True)
"""Groups differ by one sample."""


_GRADIENTS: dict[str, list[torch.Tensor]] = {}


def get_exact_gradients(setting: MomentsSetting) -> list[torch.Tensor]:
    """Of every sample; the same however they are measured."""
    alike = replace(setting, moments=ALL, chunk_size=16, dtype=torch.float64)
    if repr(alike) not in _GRADIENTS:
        _GRADIENTS[repr(alike)] = compute_sample_gradients(alike)
    return _GRADIENTS[repr(alike)]


def list_measured_samples(setting: MomentsSetting) -> list[int]:
    """All of them, or the first half, but two at least."""
    return list(range(setting.num_valid if setting.moments is ALL else max(2, math.ceil(setting.num_valid / 2))))


def compute_mean_squares(setting: MomentsSetting, gradients: list[torch.Tensor]) -> tuple[list[torch.Tensor], int]:
    """Mean square by parameter, and how many are compared; the textbook's sums, one after another."""
    n = setting.num_valid
    if setting.moments.estimator == "exact":
        measured = list_measured_samples(setting)
        return [of_parameter[measured].square().mean(dim=0) for of_parameter in gradients], len(measured)
    groups = [range(d, n, setting.moments.num_groups) for d in range(min(setting.moments.num_groups, n))]
    return [
        torch.stack([len(group) / n * of_parameter[list(group)].mean(dim=0).square() for group in groups]).sum(dim=0)
        for of_parameter in gradients
    ], len(groups)


def assert_moments(measured: MeasuredMoments, setting: MomentsSetting, tolerance: float) -> None:
    gradients = get_exact_gradients(setting)
    mean_squares, num_compared = compute_mean_squares(setting, gradients)
    assert (measured.num_samples, measured.num_compared) == (setting.num_valid, num_compared)
    means = [of_parameter.mean(dim=0) for of_parameter in gradients]
    if setting.moments.estimator == "exact":
        of_measured = [of_parameter[list_measured_samples(setting)].mean(dim=0) for of_parameter in gradients]
    else:
        of_measured = means
    pairs = (measured.mean + measured.mean_square + measured.measured_mean, means + mean_squares + of_measured)
    for found, expected in zip(*pairs, strict=True):
        assert expected.norm() > 0
        assert (found.double() - expected).norm() <= tolerance * expected.norm()


KINDS = {"exact": ALL, "exact on a share": SHARE, "groups": GROUPS}
BATCHES = {"a full batch": WHOLE, "a padded, weighted one": LAST}
TELLING = [
    (2, model, kind, 7, list(BATCHES)[(number + place) % 2])
    for number, model in enumerate(MODELS)
    for place, kind in enumerate(KINDS)
]
"""Each model and each kind meet both batches."""


@pytest.mark.parametrize(
    ("world_size", "model", "kind", "chunk_size", "batch"),
    list_cases(TELLING, (1, 2), MODELS, KINDS, (7, 16, 72), BATCHES),
)
def test_moments_are_those_of_the_samples_one_by_one(
    rank_pools: RankPools, world_size: int, model: str, kind: str, chunk_size: int, batch: str
):
    sequences = SEQUENCES if MODELS[model].attention else ()
    setting = replace(
        BATCHES[batch], model=MODELS[model], moments=KINDS[kind], chunk_size=chunk_size, sequences=sequences
    )
    for measured in rank_pools.of(world_size).run(measure_moments, setting):
        assert_moments(measured, setting, 1e-10)
    for measured in rank_pools.of(world_size).run(measure_moments, replace(setting, dtype=torch.float32)):
        assert_moments(measured, setting, 1e-5)


@pytest.mark.parametrize("moments", [SHARE, GROUPS], ids=["exact on a share", "groups"])
@pytest.mark.parametrize("num_valid", [2, 3, 5])
def test_moments_of_a_handful_of_samples_are_theirs(rank_pools: RankPools, moments: MomentsConfig, num_valid: int):
    few = replace(LAST, moments=moments, num_valid=num_valid)
    for measured in rank_pools.of(2).run(measure_moments, few):
        assert_moments(measured, few, 1e-10)


@pytest.mark.parametrize("model", MODELS)
def test_squares_in_bf16_are_within_one_percent(rank_pools: RankPools, model: str):
    size = {"global_size": 512, "num_valid": 512, "sequences": SEQUENCES if MODELS[model].attention else ()}
    setting = replace(WHOLE, model=MODELS[model], dtype=torch.float32, is_bf16=True, **size)
    (in_fp32,) = rank_pools.of(1).run(measure_moments, setting)
    (in_bf16,) = rank_pools.of(1).run(measure_moments, replace(setting, has_bf16_squares=True))
    pairs = list(zip(in_bf16.mean_square, in_fp32.mean_square, strict=True))
    assert any(not torch.equal(found, expected) for found, expected in pairs)
    for found, expected in pairs:
        assert (found - expected).norm() <= 0.01 * expected.norm()


@pytest.mark.parametrize("moments", [SHARE, GROUPS], ids=["exact on a share", "groups"])
def test_variances_do_not_depend_on_ranks_or_chunk(rank_pools: RankPools, moments: MomentsConfig):
    setting = replace(LAST, moments=moments)
    (alone,) = rank_pools.of(1).run(measure_moments, setting)
    for other in rank_pools.of(2).run(measure_moments, replace(setting, chunk_size=5)):
        torch.testing.assert_close(other.variance, alone.variance, rtol=1e-8, atol=0)


def test_the_noise_of_a_batch_is_its_covariance_without_bias(rank_pools: RankPools):
    (measured,) = rank_pools.of(1).run(measure_moments, LAST)
    gradients = get_exact_gradients(LAST)
    for trace, squared_norm, of_parameter in zip(
        measured.noise.traces.values(), measured.noise.squared_norms.values(), gradients, strict=True
    ):
        expected = of_parameter.var(dim=0, correction=1).sum().item()
        assert trace == pytest.approx(expected, rel=1e-9)
        assert squared_norm == pytest.approx(of_parameter.mean(dim=0).square().sum().item() - expected / 47, rel=1e-9)
