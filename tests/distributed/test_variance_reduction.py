"""Variance reduction where it must equal a known method, and its independence of ranks and chunks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from torch import nn

from dlrm.config import DenseOptimizerConfig, MomentsConfig, VarianceReductionConfig
from dlrm.gradient_stats.exact import ExactMoments
from dlrm.gradient_stats.moments import Moments
from dlrm.gradient_stats.variance_reduction import ClippedFractions, VarianceReduction
from dlrm.model.mlp import Linear
from dlrm.optimizers import make_dense_optimizer, set_learning_rate
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, draw_batches
from tests.distributed.training import TrainedModel, TrainingSetting, train
from tests.rank_pool.pool import RankPools

EXACT = MomentsConfig(fraction=1.0, every=1)
SHARE = MomentsConfig(every=1)
GROUPS = MomentsConfig(estimator="groups", every=1)
OPTIMIZERS = (
    "sgd",
    "momentum",
    "lars",
    "adagrad",
    "adam",
    "adamw",
    "nadamw",
    "lamb",
    "soap",
    "adafactor",
    "schedule_free",
)
REFUSED = [("schedule_free", "update")]
PLAIN = TrainingSetting(256, 64, "rowwise_adagrad", dense_rate=0.01, table_rate=0.02)


@cache
def draw_short_run() -> list[GlobalBatch]:
    return draw_batches(6, 256, [rows for _, rows in PLAIN.table_rows], num_empty_in_last=100)


def train_on_first_rank(rank_pools: RankPools, setting: TrainingSetting, world_size: int = 1) -> TrainedModel:
    return rank_pools.of(world_size).run(train, setting, draw_short_run())[0]


def largest_difference(one: TrainedModel, other: TrainedModel) -> float:
    """Of the dense weights, as a share of their tensor's largest."""
    pairs = [(one.dense[name], other.dense[name]) for name in other.dense]
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(EXACT, id="exact"),
        pytest.param(SHARE, id="on a share", marks=pytest.mark.slow),
        pytest.param(GROUPS, id="groups", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("optimizer", "scale"),
    [(name, scale) for name in OPTIMIZERS for scale in ("gradient", "update") if (name, scale) not in REFUSED],
)
def test_with_gamma_one_it_is_the_optimizer_alone(
    rank_pools: RankPools, optimizer: str, moments: MomentsConfig, scale: str
):
    """Groups, and a share, end chunks, and sum in another order: what is compared measures them too."""
    setting = replace(PLAIN, dense_optimizer=optimizer, moments=moments)
    alone = train_on_first_rank(rank_pools, setting)
    reduction = VarianceReductionConfig(gamma=1.0, scale=scale)  # pyright: ignore[reportArgumentType]
    reduced = train_on_first_rank(rank_pools, replace(setting, variance_reduction=reduction))
    is_smoothed = optimizer in ("adam", "adamw", "nadamw", "lamb", "soap", "adafactor", "schedule_free")
    # The first batch is measured whole, and so in other chunks.
    is_same_arithmetic = not is_smoothed and moments is not SHARE
    # Eigenvectors of SOAP whose eigenvalues hardly differ follow the rounding of gradients.
    rounding = 5e-3 if optimizer == "soap" else 1e-6
    assert largest_difference(reduced, alone) <= (0.0 if is_same_arithmetic else rounding)


def test_measuring_moments_changes_nothing(rank_pools: RankPools):
    setting = replace(PLAIN, dense_optimizer="momentum")
    measured = train_on_first_rank(rank_pools, replace(setting, moments=EXACT))
    assert largest_difference(measured, train_on_first_rank(rank_pools, setting)) == 0.0


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(EXACT, id="exact"),
        pytest.param(SHARE, id="on a share", marks=pytest.mark.slow),
        pytest.param(GROUPS, id="groups"),
    ],
)
@pytest.mark.parametrize(
    "optimizer",
    [*(pytest.param(name, marks=pytest.mark.slow) for name in ("sgd", "soap")), "lamb", "schedule_free"],
)
def test_updates_do_not_depend_on_ranks_or_chunk(rank_pools: RankPools, optimizer: str, moments: MomentsConfig):
    setting = replace(
        PLAIN,
        dense_optimizer=optimizer,
        moments=moments,
        variance_reduction=VarianceReductionConfig(),
        dense_rate=0.003,
    )
    alone = train_on_first_rank(rank_pools, setting)
    for world_size, chunk_size in [(2, 64), (4, 37)]:
        other = train_on_first_rank(rank_pools, replace(setting, chunk_size=chunk_size), world_size)
        torch.testing.assert_close(torch.tensor(other.losses), torch.tensor(alone.losses), rtol=1e-5, atol=0)
        assert largest_difference(other, alone) <= (1e-3 if optimizer == "soap" else 1e-4)


def test_variance_reduction_and_its_controls_change_the_result(rank_pools: RankPools):
    settings = [
        VarianceReductionConfig(control=control, scale=scale)
        for control in (None, "mean", "shuffled")
        for scale in ("gradient", "update")
    ]
    runs = [train_on_first_rank(rank_pools, replace(PLAIN, dense_optimizer="adam"))] + [
        train_on_first_rank(
            rank_pools, replace(PLAIN, moments=EXACT, variance_reduction=setting, dense_optimizer="adam")
        )
        for setting in settings
    ]
    for number, run in enumerate(runs):
        assert all(largest_difference(run, other) > 1e-4 for other in runs[:number])


def test_the_same_groups_have_ratio_one(rank_pools: RankPools):
    (part,) = draw_batches(1, 32, [rows for _, rows in PLAIN.table_rows])
    # Each row eight times, in one group each: sample i is of group i mod 8.
    whole = GlobalBatch(
        part.dense.repeat(8, axis=0),
        type(part.bags)(
            part.bags.values.reshape(-1, 32).repeat(8, axis=1).reshape(-1), part.bags.lengths.repeat(8, axis=1)
        ),
        part.labels.repeat(8),
    )
    setting = replace(PLAIN, moments=GROUPS)
    (before,) = rank_pools.of(1).run(train, setting, [])
    (alone,) = rank_pools.of(1).run(train, setting, [whole])
    reduced = replace(setting, variance_reduction=VarianceReductionConfig())
    (scaled,) = rank_pools.of(1).run(train, reduced, [whole])
    for name, start in before.dense.items():
        moved, expected = scaled.dense[name] - start, alone.dense[name] - start
        assert expected.norm() > 0
        # A weight's own rounding is that of the weight, not of its movement.
        assert (moved - expected).norm() <= 1e-6 * expected.norm() + 1e-7 * start.norm()


# Below, on parameters and moments that are given.

SHAPES = [(6, 4), (6,), (3, 5)]
LAYERS = [24 + 6, 15]
"""A weight with its bias, and a weight without one."""


@dataclass(frozen=True)
class ReducedSteps:
    """Of one step at a time: parameters, flat, before and after it; and what was said of it."""

    gradients: list[torch.Tensor]
    parameters: list[torch.Tensor]
    clipped: list[ClippedFractions | None]


def draw_moments(number: int, *, num_measured: int = 64, is_dead: Sequence[int] = ()) -> Moments:
    """Of a batch of 64; elements of `is_dead` have no gradient."""
    generator = torch.Generator().manual_seed(number)
    samples = torch.randn(num_measured, 45, generator=generator) + 0.3
    samples[:, list(is_dead)] = 0.0
    mean = samples.mean(dim=0)
    return Moments(mean, samples.square().mean(dim=0), mean, 64, num_measured, num_measured)


def step_with_moments(
    ranks: Ranks, config: VarianceReductionConfig, moments: list[Moments | None], rate: float, is_smoothed: bool
) -> ReducedSteps:
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    sums = GradientBuffer(parameters, ranks, num_extra_sums=0)
    optimizer = make_dense_optimizer(
        DenseOptimizerConfig(name="sgd"), [(f"p{number}", parameter) for number, parameter in enumerate(parameters)]
    )
    set_learning_rate(optimizer, rate)
    reduction = VarianceReduction(config, parameters, sums, layer_sizes=LAYERS, is_smoothed=is_smoothed, seed=5)
    reduced = ReducedSteps([], [flatten(parameters)], [])
    for index, of_step in enumerate(moments):
        gradient = of_step.mean if of_step else torch.ones(45)
        sums.gradient.copy_(gradient)
        reduced.gradients.append(gradient.clone())
        fractions = reduction.precondition(of_step and replace(of_step, mean=sums.gradient), index)
        reduced.clipped.append(None if fractions is None else ClippedFractions(*fractions.tolist()))
        optimizer.step()
        reduction.finish_update()
        reduced.parameters.append(flatten(parameters))
    return reduced


def flatten(parameters: list[nn.Parameter]) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters]).double()


def compute_factors(reduced: ReducedSteps, rate: float) -> list[torch.Tensor]:
    """What SGD's gradient was scaled by, of every step."""
    pairs = zip(reduced.parameters, reduced.parameters[1:], reduced.gradients, strict=False)
    return [(before - after) / (rate * gradient.double()) for before, after, gradient in pairs]


def split_by_layer(values: torch.Tensor) -> list[torch.Tensor]:
    return list(values.split(LAYERS))


def compute_clipped_ratios(moments: Moments, gamma: float = 0.1) -> torch.Tensor:
    """r by the formulas, in float64."""
    mean, mean_square = moments.mean.double(), moments.mean_square.double()
    ratio = mean.square() / (mean_square - mean.square())
    return torch.cat([(part / part.mean()).clamp(gamma, 1) for part in split_by_layer(ratio)])


def run_on_one(
    rank_pools: RankPools,
    config: VarianceReductionConfig,
    moments: list[Moments | None],
    rate: float,
    *,
    is_smoothed: bool = False,
) -> ReducedSteps:
    return rank_pools.of(1).run(step_with_moments, config, moments, rate, is_smoothed)[0]


def test_the_factor_is_the_ratio_over_the_mean_of_its_layer_clipped(rank_pools: RankPools):
    moments = draw_moments(1)
    reduced = run_on_one(rank_pools, VarianceReductionConfig(), [moments], 0.5)
    expected = compute_clipped_ratios(moments)
    torch.testing.assert_close(compute_factors(reduced, 0.5)[0], expected, rtol=1e-4, atol=0)
    assert reduced.clipped == [
        ClippedFractions((expected == 0.1).double().mean().item(), (expected == 1.0).double().mean().item())
    ]


def test_the_control_mean_under_sgd_is_sgd_at_the_scaled_rate(rank_pools: RankPools):
    moments = draw_moments(1)
    reduced = run_on_one(rank_pools, VarianceReductionConfig(control="mean"), [moments], 0.5)
    means = torch.cat([part.mean().expand_as(part) for part in split_by_layer(compute_clipped_ratios(moments))])
    expected = reduced.parameters[0] - 0.5 * means * moments.mean.double()
    torch.testing.assert_close(reduced.parameters[1], expected, rtol=1e-6, atol=1e-7)


def test_the_control_shuffled_permutes_the_same_factors_in_every_step(rank_pools: RankPools):
    moments = draw_moments(1)
    reduced = run_on_one(rank_pools, VarianceReductionConfig(control="shuffled"), [moments, moments], 0.5)
    first, second = compute_factors(reduced, 0.5)
    assert not torch.allclose(first, second)
    for found in (first, second):
        assert not torch.allclose(found, compute_clipped_ratios(moments), rtol=1e-3)
        for part, expected in zip(split_by_layer(found), split_by_layer(compute_clipped_ratios(moments)), strict=True):
            torch.testing.assert_close(part.sort().values, expected.sort().values, rtol=1e-4, atol=0)


def test_dead_elements_get_gamma_and_no_mean_and_dead_layers_nothing(rank_pools: RankPools):
    moments, all_alive = draw_moments(1, is_dead=[*range(20, 24), *range(30, 45)]), draw_moments(1)
    # Weight decay and momentum would still move a dead element: its gradient here is not 0.
    moments = replace(moments, mean=torch.where(moments.mean == 0, 0.5, moments.mean))
    found = compute_factors(run_on_one(rank_pools, VarianceReductionConfig(), [moments], 0.5), 0.5)[0]
    ratio = all_alive.mean.double().square() / (all_alive.mean_square - all_alive.mean.square()).double()
    alive = [*range(20), *range(24, 30)]
    torch.testing.assert_close(found[alive], (ratio[alive] / ratio[alive].mean()).clamp(0.1, 1), rtol=1e-4, atol=0)
    torch.testing.assert_close(found[20:24], torch.full((4,), 0.1, dtype=torch.float64), rtol=1e-4, atol=0)
    torch.testing.assert_close(found[30:], torch.ones(15, dtype=torch.float64), rtol=1e-4, atol=0)


def test_a_first_batch_without_gradients_is_not_taken_for_a_measurement(rank_pools: RankPools):
    """As one whose rows all have weight 0; the next one is then the first that counts, whole."""
    nothing, moments = draw_moments(1, is_dead=[*range(45)]), draw_moments(1)
    reduced = run_on_one(rank_pools, VarianceReductionConfig(beta3=0.8), [nothing, moments], 0.5, is_smoothed=True)
    assert reduced.clipped[0] is None
    torch.testing.assert_close(compute_factors(reduced, 0.5)[1], compute_clipped_ratios(moments), rtol=1e-4, atol=0)


def test_between_measurements_the_last_factors_serve_and_before_any_the_gradient_is_whole(rank_pools: RankPools):
    moments = draw_moments(1)
    reduced = run_on_one(rank_pools, VarianceReductionConfig(), [None, moments, None], 0.5)
    before, measured, after = compute_factors(reduced, 0.5)
    torch.testing.assert_close(before, torch.ones(45, dtype=torch.float64), rtol=1e-5, atol=0)
    assert reduced.clipped[0] is None
    torch.testing.assert_close(after, measured, rtol=1e-3, atol=0)
    assert reduced.clipped[1] is not None
    assert reduced.clipped[2] is None


def test_smoothed_factors_are_their_bias_corrected_running_mean(rank_pools: RankPools):
    moments = [draw_moments(number) for number in range(3)]
    reduced = run_on_one(rank_pools, VarianceReductionConfig(beta3=0.8), list(moments), 0.5, is_smoothed=True)
    smoothed = torch.zeros(45, dtype=torch.float64)
    for number, (of_step, found) in enumerate(zip(moments, compute_factors(reduced, 0.5), strict=True), start=1):
        smoothed = 0.8 * smoothed + 0.2 * compute_clipped_ratios(of_step)
        torch.testing.assert_close(found, smoothed / (1 - 0.8**number), rtol=2e-4, atol=0)


def test_a_share_of_a_batch_moves_the_variance_by_that_share(rank_pools: RankPools):
    first, second = draw_moments(1), draw_moments(2, num_measured=16)
    reduced = run_on_one(rank_pools, VarianceReductionConfig(), [first, second], 0.5)
    variance = 0.75 * first.compute_variance().double() + 0.25 * second.compute_variance().double()
    expected = [(part / part.mean()).clamp(0.1, 1) for part in split_by_layer(second.mean.double().square() / variance)]
    torch.testing.assert_close(compute_factors(reduced, 0.5)[1], torch.cat(expected), rtol=2e-4, atol=0)


def test_elements_that_a_share_misses_for_long_keep_their_variance(rank_pools: RankPools):
    """One in each tensor is silent for a thousand steps, and comes back where the share does not see it."""
    whole = draw_moments(1)
    is_rare = torch.zeros(45, dtype=torch.bool)
    is_rare[[0, 24, 30]] = True
    silent = replace(
        draw_moments(2, num_measured=8),
        mean=torch.where(is_rare, 0.0, whole.mean),
        mean_square=torch.where(is_rare, 0.0, whole.mean_square),
        measured_mean=torch.where(is_rare, 0.0, whole.mean),
    )
    back = replace(silent, mean=whole.mean)
    reduced = run_on_one(rank_pools, VarianceReductionConfig(), [whole, *[silent] * 1000, back], 1e-4)
    first, last = reduced.clipped[0], reduced.clipped[-1]
    assert first is not None
    assert last is not None
    assert reduced.parameters[-1].isfinite().all()
    assert last.at_gamma == pytest.approx(first.at_gamma, abs=0.1)


def test_one_group_is_refused():
    with pytest.raises(ValueError, match="num_groups"):
        MomentsConfig(estimator="groups", num_groups=1)


def test_a_parameter_that_no_estimator_covers_is_refused(rank_pools: RankPools):
    assert "top.scale" in rank_pools.of(1).run(find_refusal_of_uncovered_parameter)[0]


def find_refusal_of_uncovered_parameter(ranks: Ranks) -> str:
    model = nn.ModuleDict({"top": Linear(2, 1)})
    model["top"].register_parameter("scale", nn.Parameter(torch.ones(1)))
    sums = GradientBuffer(list(model.parameters()), ranks, num_extra_sums=1)
    try:
        ExactMoments(EXACT, model, sums, is_bf16=False)
    except ValueError as error:
        return str(error)
    return "not refused"
