"""A trained model that is blended with logistic regression, against the formula in float64."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import DataConfig, JobConfig, ModelConfig, resolve
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.data.rows import Feature
from dlrm.data.split import hold_out_validation
from dlrm.exported_model.blend import SHARES, fit_blend, score_source, try_blend
from dlrm.exported_model.export import export_model
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.run_checkpoint import RunCheckpoint
from dlrm.model import PlainModel
from dlrm.yardsticks import rows as yardsticks
from dlrm.yardsticks.logistic import fit_logistic_regression
from tests.dlrm.exported_model.model_factory import METRICS, SIZES, job_of, save_weights
from tests.dlrm.yardsticks.memory_rows import COUNTRY, SITE, TAGS, MemoryRows, draw_rows, make_columns

MAX_BYTES = 1 << 30
SEED = 3
"""Seed of the run, which draws one validation row of every five."""
SYNTHETIC = DataConfig.model_validate({"format": "synthetic", "synthetic": {"num_rows": 4000, "num_ids": 60}})


def make_job(model: dict[str, Any], blend: str = "logistic", fraction: float = 0.2) -> JobConfig:
    run = {"blend": blend, "validation_fraction": fraction, "seed": SEED}
    return JobConfig.model_validate({"data": {"format": "synthetic"}, "model": {**SIZES, **model}, "run": run})


def draw_data(features: Sequence[Feature], num_dense: int, *, weighted: bool = False) -> Dataset:
    train, evaluation = (draw_rows(1500, features, num_dense, weighted=weighted, seed=seed) for seed in (0, 1))
    return Dataset(train.schema, train, evaluation, 0.3, None, has_weights=weighted)


def draw_model(config: ModelConfig, dataset: Dataset, scale: float) -> PlainModel:
    """A model of random weights, whose logits are about `scale`."""
    schema = dataset.schema
    model = PlainModel(config, schema.num_dense, {feature.name: feature.num_ids for feature in schema.features})
    generator = torch.Generator().manual_seed(1)
    drawn = {name: 0.3 * torch.randn(tensor.shape, generator=generator) for name, tensor in model.state_dict().items()}
    last = f"dense.top.layers.{len(config.top_mlp) - 1}"
    model.load_state_dict(drawn, assign=True)
    assert isinstance(dataset.train, MemoryRows)
    spread = score_source(model, dataset.train).logits.std()
    for name in (f"{last}.weight", f"{last}.bias"):
        drawn[name] *= scale / spread
    model.load_state_dict(drawn, assign=True)
    return model


def compute_log_loss(labels: NDArray[Any], logits: NDArray[np.float64], weights: NDArray[Any] | None) -> float:
    return float(np.average(np.logaddexp(0, logits) - labels * logits, weights=weights))


def choose_share(losses: Sequence[float], weights: NDArray[Any] | None, num_rows: int) -> float:
    """The share with the greatest posterior density: a normal prior around a half, whose deviation is a quarter."""
    num_effective = num_rows if weights is None else np.sum(weights) ** 2 / np.sum(np.square(weights))
    log_densities = [
        -num_effective * loss - (share - 0.5) ** 2 / (2 * 0.25**2) for share, loss in zip(SHARES, losses, strict=True)
    ]
    return SHARES[int(np.argmax(log_densities))]


def list_validation_rows(train: MemoryRows) -> NDArray[np.int64]:
    """List the numbers of the validation rows, as a source of row numbers in place of labels tells them."""
    numbers = np.arange(train.num_rows, dtype=np.float32)
    source = MemoryRows(train.schema, replace(train.rows, labels=numbers))
    held_out = hold_out_validation(Dataset(train.schema, source, source, 0.5, None), 0.2, "hash", SEED).validation
    assert held_out is not None
    return held_out.read(np.arange(held_out.num_rows)).labels.astype(np.int64)


ALL, NONE = (SITE, TAGS, COUNTRY), ()


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("architecture", ["dlrm", "dcn_v2"])
@pytest.mark.parametrize(
    ("features", "num_dense", "weighted"),
    [(ALL, 3, False), (ALL, 3, True), (ALL, 0, False), (NONE, 3, False)],
    ids=["all kinds of columns", "weighted rows", "ids alone", "dense columns alone"],
)
def test_the_share_is_the_likeliest_one_on_validation_rows_and_the_logit_the_weighted_mean(
    architecture: str, pooling: str, features: Sequence[Feature], num_dense: int, weighted: bool
) -> None:
    dataset, is_mean = draw_data(features, num_dense, weighted=weighted), pooling == "mean"
    job = make_job({"architecture": architecture, "pooling": pooling})
    model = draw_model(job.model, dataset, scale=0.3)
    train = dataset.train
    assert isinstance(train, MemoryRows)
    validation = list_validation_rows(train)
    others = MemoryRows(train.schema, train.read(np.setdiff1d(np.arange(train.num_rows), validation)))
    rows = train.read(validation)
    by_model = score_source(model, MemoryRows(train.schema, rows)).logits
    by_logistic = (
        make_columns(train.schema, rows, is_mean=is_mean)
        @ fit_logistic_regression(others, MAX_BYTES, is_mean=is_mean).weights
    )
    losses = [
        compute_log_loss(rows.labels, (1 - share) * by_model + share * by_logistic, rows.weights) for share in SHARES
    ]

    blend = fit_blend(model, dataset, job)

    assert blend is not None
    assert blend.share == choose_share(losses, rows.weights, len(validation)) > 0
    assert (blend.num_rows, blend.num_train_rows) == (len(validation), train.num_rows)
    found = [blend.model_log_loss, blend.logistic_log_loss, blend.log_loss]
    assert found == pytest.approx([losses[0], losses[-1], losses[SHARES.index(blend.share)]], rel=1e-6)

    evaluation = dataset.evaluation
    assert isinstance(evaluation, MemoryRows)
    alone = score_source(model, evaluation).logits
    columns = make_columns(train.schema, evaluation.rows, is_mean=is_mean)
    fitted_on_all = columns @ fit_logistic_regression(train, MAX_BYTES, is_mean=is_mean).weights
    model.first_order = blend.first_order
    expected = (1 - blend.share) * alone + blend.share * fitted_on_all
    np.testing.assert_allclose(score_source(model, evaluation).logits, expected, atol=1e-5)


def test_negatives_that_were_left_out_do_not_move_the_share_and_change_the_log_losses_alone() -> None:
    share = 0.01
    dataset, job = draw_data(ALL, 3), make_job({})
    sampled = job.model_copy(update={"data": job.data.model_copy(update={"negative_sampling": share})})
    model = draw_model(job.model, dataset, scale=0.3)
    plain, blend = (fit_blend(model, dataset, document) for document in (job, sampled))
    assert plain is not None
    assert blend is not None
    assert blend.share == plain.share != 0.5
    rows = blend.validation
    np.testing.assert_array_equal(rows.logits, plain.validation.logits)
    weights = np.where(rows.labels == 1, 1.0, 1 / share)
    expected = compute_log_loss(rows.labels, rows.logits.astype(np.float64) + np.log(share), weights)
    assert blend.log_loss == pytest.approx(expected, rel=1e-6)


def test_a_model_of_noise_gives_way_to_logistic_regression() -> None:
    dataset, job = draw_data(ALL, 3), make_job({})
    model = draw_model(job.model, dataset, scale=30)
    blend = fit_blend(model, dataset, job)
    assert blend is not None
    assert blend.share == 1.0
    model.first_order = blend.first_order
    expected = fit_logistic_regression(dataset.train, MAX_BYTES, is_mean=False)
    assert isinstance(dataset.evaluation, MemoryRows)
    logits = score_source(model, dataset.evaluation).logits
    np.testing.assert_allclose(logits, expected.predict(dataset.evaluation.rows), atol=1e-5)


@pytest.mark.parametrize("weight", [1.0, 1000.0])
def test_few_validation_rows_move_the_share_little_whatever_their_weights(weight: float) -> None:
    drawn = draw_data(ALL, 3)
    assert isinstance(drawn.train, MemoryRows)
    weights = np.full(drawn.train.num_rows, weight, np.float32)
    dataset = replace(drawn, train=MemoryRows(drawn.schema, replace(drawn.train.rows, weights=weights)))
    few, many = make_job({}, fraction=1 / 150), make_job({}, fraction=0.5)
    model = draw_model(few.model, drawn, scale=0.1)
    blends = [fit_blend(model, dataset, job) for job in (few, many)]
    assert blends[0] is not None
    assert blends[1] is not None
    assert [blend.num_rows for blend in blends if blend] == [10, 750]
    # By its log-loss alone logistic regression, 0.27 against 0.79, would have all of it.
    assert 0.5 <= blends[0].share <= 0.7
    assert blends[1].share >= 0.9


def test_a_model_that_labels_follow_stays_alone() -> None:
    drawn, job = draw_data(ALL, 3), make_job({"architecture": "dcn_v2"})
    model = draw_model(job.model, drawn, scale=8)
    assert isinstance(drawn.train, MemoryRows)
    labels = (score_source(model, drawn.train).logits > 0).astype(np.float32)
    dataset = replace(drawn, train=MemoryRows(drawn.schema, replace(drawn.train.rows, labels=labels)))
    blend = fit_blend(model, dataset, job)
    assert blend is not None
    assert (blend.share, blend.first_order, blend.log_loss) == (0.0, None, blend.model_log_loss)


@pytest.mark.parametrize(("blend", "fraction"), [("none", 0.2), ("logistic", 0.0)])
def test_nothing_is_blended_where_the_job_asks_for_nothing_or_has_no_validation_rows(
    blend: str, fraction: float
) -> None:
    dataset, job = draw_data(ALL, 3), make_job({}, blend, fraction)
    notes: list[str] = []
    assert try_blend(draw_model(job.model, dataset, scale=0.3), dataset, job, notes.append) is None
    assert len(notes) == (blend != "none")


def assert_same_state(read: nn.Module, written: nn.Module) -> None:
    """Assert that two models have the same weights, to the bit."""
    weights, expected = read.state_dict(), written.state_dict()
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight), name


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_blended_model_is_loaded_as_saved_and_its_card_says_so(tmp_path: Path) -> None:
    job = job_of(SYNTHETIC, run={"blend": "logistic", "validation_fraction": 0.2})
    dataset = open_data(SYNTHETIC, None, None)
    model = save_weights(tmp_path / "checkpoint", job, dataset, seed=0)
    blend = fit_blend(model, dataset, job)
    assert blend is not None
    assert blend.first_order is not None
    export_model(
        tmp_path / "checkpoint", tmp_path / "model", resolve(job), dataset, METRICS, first_order=blend.first_order
    )
    model.first_order = blend.first_order
    saved = load_saved_model(tmp_path / "model")
    assert saved.config.first_order_share == blend.share
    read, written = (score_source(one, dataset.evaluation).logits for one in (saved.module, model))
    assert_same_state(saved.module, model)
    # Kernels of some processors round by where in memory weights begin, which differs where they were read.
    np.testing.assert_allclose(read, written, rtol=1e-5, atol=1e-6)
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    assert f"{blend.share:.1f} times that of a logistic regression" in card


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_that_cannot_be_blended_is_the_trained_model_with_a_note(tmp_path: Path) -> None:
    drawn, job = draw_data(ALL, 3, weighted=True), make_job({})
    assert isinstance(drawn.train, MemoryRows)
    weights = np.ones(drawn.train.num_rows, np.float32)
    weights[:1000] = 0
    # The memory suffices for a sample of the rows only: the first of them.
    rows = MemoryRows(drawn.schema, replace(drawn.train.rows, weights=weights), row_bytes=yardsticks.MAX_BYTES // 100)
    dataset = replace(drawn, train=rows)
    trained = save_weights(tmp_path / "step-7", job, dataset, seed=0)
    notes: list[str] = []
    checkpoint = RunCheckpoint(
        tmp_path / "step-7", resolve(job), dataset, RunProgress(step=7, num_steps=9), notes.append
    )
    saved = checkpoint.load_model()
    assert (saved.module.first_order, saved.config.first_order_share) == (None, None)
    assert len(notes) == 1
    assert notes[0].startswith("the model is left as it was trained, since it could not be blended: the weights of")
    assert_same_state(saved.module, trained)
    read, written = (score_source(model, dataset.evaluation).logits for model in (saved.module, trained))
    np.testing.assert_allclose(read, written, rtol=1e-5, atol=1e-6)


def test_a_model_that_overflows_is_not_blended() -> None:
    dataset, job = draw_data(ALL, 3), make_job({})
    model = draw_model(job.model, dataset, scale=0.3)
    model.load_state_dict({name: tensor * np.nan for name, tensor in model.state_dict().items()}, assign=True)
    notes: list[str] = []
    assert try_blend(model, dataset, job, notes.append) is None
    assert "NaN" in notes[0]
