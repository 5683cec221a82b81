"""The initial state of a run that starts from the model of another, and the models that it refuses."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dlrm.config import JobConfig, ResolvedJob, resolve
from dlrm.data.errors import DataError
from dlrm.data.open import open_data
from dlrm.record import CheckpointDirectory, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.train.build import TrainRows, build_parts, plan_tables
from dlrm.train.context import RunContext
from dlrm.train.run import run
from dlrm.train.stop_request import StopRequest
from dlrm.train.warm_start.start import start_warm
from sharding.comm.process_groups import Ranks
from sharding.embedding.initial_weights import fill_uniform
from tests.distributed.saving import list_local_tensors
from tests.distributed.training import copy_shards
from tests.dlrm.exported_model.model_factory import signed
from tests.dlrm.train.test_run import list_events
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

OLD_IDS, NEW_IDS = 200, 300


def make_job(world_size: int, num_ids: int = OLD_IDS, plan: str = "table_wise", **changes: Any) -> ResolvedJob:
    document = {
        "data": {"format": "synthetic", "synthetic": {"num_rows": 6000, "num_ids": num_ids}},
        "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
        "batch": {"global_size": 512},
        "dense_optimizer": {"name": "adam", "learning_rate": 0.01, "schedule": {"scaling": "none"}},
        "variance_reduction": {},
        "table_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.1},
        "sharding": {"plan": plan},
        "run": {"eval_every_fraction": 1.0, "yardsticks": "none"},
        "resources": {"workers_per_node": world_size},
    }
    return resolve(JobConfig.model_validate({**document, **changes}))


def make_warm_start(source: Path, optimizer_state: bool = False, **changes: Any) -> dict[str, Any]:
    warm_start = {"from": str(source), "optimizer_state": optimizer_state}
    return {"run": {"eval_every_fraction": 1.0, "yardsticks": "none", "seed": 5, "warm_start": warm_start}, **changes}


def train(ranks: Ranks, resolved: ResolvedJob, path: Path) -> dict[str, float | None]:
    directory = RunDirectory(path)
    directory.attempt(1).create()
    reporter = Reporter(directory.attempt(1), ranks.rank)
    return run(RunContext(resolved, directory, directory.attempt(1).profile, ranks, reporter, StopRequest())).metrics


@pytest.fixture(scope="module")
def old(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of two ranks that has succeeded."""
    directory = RunDirectory(tmp_path_factory.mktemp("old") / "run")
    rank_pools.of(2).run(train, make_job(2), directory.path)
    directory.spec.write_text(make_job(2).model_dump_json())
    return directory


@dataclass(frozen=True)
class StartState:
    """Weights and optimizer state of one rank before its first step."""

    shards: list[tuple[str, int, int, torch.Tensor]]
    dense: dict[str, torch.Tensor]
    table_state: dict[str, torch.Tensor]
    """State by `/<name of the table>@<offsets>`."""
    dense_state: dict[str, torch.Tensor]
    """State of the dense optimizer and of variance reduction, by the names of a checkpoint."""


def start_run(ranks: Ranks, resolved: ResolvedJob, path: Path) -> StartState:
    """Return the state of a run just before its first step. Raises DataError where it is refused."""
    directory = RunDirectory(path)
    directory.attempt(1).create()
    dataset = open_data(resolved.job.data, None, None)
    plan = plan_tables(resolved, dataset.schema).plan
    parts = build_parts(resolved, dataset.schema, plan, ranks, TrainRows(dataset.train.num_rows))
    attempt = directory.attempt(1)
    context = RunContext(resolved, directory, attempt.profile, ranks, Reporter(attempt, ranks.rank), StopRequest())
    assert parts.reduction is not None
    start_warm(parts, context, dataset)
    return StartState(
        copy_shards(parts.tables),
        {name: tensor.clone() for name, tensor in parts.model.state_dict().items()},
        dict(list_local_tensors(parts.tables.state_dict()["optimizer"])),
        {
            key.replace("/", "."): tensor
            for state, prefix in (
                (parts.optimizer.state_dict()["state"], "dense_optimizer.state"),
                (parts.reduction.state_dict(), "variance_reduction"),
            )
            for key, tensor in list_local_tensors(state, prefix)
        },
    )


def find_refusal(ranks: Ranks, resolved: ResolvedJob, path: Path) -> str:
    """Return the error of a run that is refused."""
    with pytest.raises(DataError) as refused:
        start_run(ranks, resolved, path)
    return str(refused.value)


def concatenate(parts: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
    return torch.cat([tensor for _, tensor in sorted(parts, key=lambda part: part[0])])


def assemble_tables(starts: list[StartState]) -> dict[str, torch.Tensor]:
    names = dict.fromkeys(name for rank in starts for name, *_ in rank.shards)
    return {
        name: concatenate([(row, rows) for rank in starts for other, row, _, rows in rank.shards if other == name])
        for name in names
    }


def assemble_adagrad_sums(starts: list[StartState]) -> dict[str, torch.Tensor]:
    """Assemble the sums of row-wise Adagrad, [rows] of each table."""
    parts: dict[str, list[tuple[int, torch.Tensor]]] = {}
    for rank in starts:
        for key, tensor in rank.table_state.items():
            name, _, offsets = key.rpartition("@")
            parts.setdefault(name.removeprefix("/"), []).append((json.loads(offsets)[0], tensor))
    return {name: concatenate(found) for name, found in parts.items()}


def draw_table(name: str, num_rows: int, seed: int) -> torch.Tensor:
    table = torch.empty(num_rows, 8)
    bound = 1 / math.sqrt(num_rows)
    fill_uniform(table, table_name=name, seed=seed, row_offset=0, column_offset=0, num_columns=8, bound=bound)
    return table


ACCUMULATED = {"table_optimizer": {"name": "rowwise_adagrad", "initial_accumulator": 0.25}}
"""At a batch of 512, whose scale is 512 too, sums of squares begin at 0.25."""


@pytest.mark.parametrize(("changes", "begins_at"), [({}, 0.0), (ACCUMULATED, 0.25)], ids=["zero", "above zero"])
@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_old_rows_are_the_models_bit_for_bit_and_new_ones_are_fresh(
    rank_pools: RankPools,
    old: RunDirectory,
    tmp_path: Path,
    world_size: int,
    plan: str,
    changes: dict[str, Any],
    begins_at: float,
):
    warm_start = make_warm_start(old.path, optimizer_state=True, **changes)
    resolved = make_job(world_size, NEW_IDS, plan, **warm_start)
    starts: list[StartState] = rank_pools.of(world_size).run(start_run, resolved, tmp_path)
    model = load_file(old.model / "model.safetensors")
    state = read_whole(get_last_checkpoint(old).path)
    tables, sums = assemble_tables(starts), assemble_adagrad_sums(starts)
    grown = 0
    for name, table in tables.items():
        saved = model[f"tables.{name}.weight"]
        assert torch.equal(table[: len(saved)], saved), name
        assert torch.equal(table[len(saved) :], draw_table(name, len(table), seed=5)[len(saved) :]), name
        gathered = state[f"tables.optimizer.{name}"]
        assert torch.equal(sums[name][: len(saved)], gathered), name
        assert (sums[name][len(saved) :] == begins_at).all(), name
        grown += len(table) - len(saved)
    assert grown > 100
    assert len(tables) == 26
    for rank in starts:
        assert all(torch.equal(tensor, model[f"dense.{name}"]) for name, tensor in rank.dense.items())


def get_last_checkpoint(directory: RunDirectory) -> CheckpointDirectory:
    (path,) = directory.checkpoints.iterdir()
    return CheckpointDirectory(path, int(path.name.removeprefix("step-")))


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
def test_without_new_ids_and_with_optimizer_state_it_begins_as_the_old_run_ended(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, plan: str
):
    resolved = make_job(2, OLD_IDS, plan, **make_warm_start(old.path, optimizer_state=True))
    starts: list[StartState] = rank_pools.of(2).run(start_run, resolved, tmp_path)
    state = read_whole(get_last_checkpoint(old).path)
    for name, table in assemble_tables(starts).items():
        assert torch.equal(table, state[f"tables.weights.{name}"]), name
    for name, sums in assemble_adagrad_sums(starts).items():
        assert sums.any(), name
        assert torch.equal(sums, state[f"tables.optimizer.{name}"]), name
    for rank in starts:
        assert {key.partition(".")[0] for key in rank.dense_state} == {"dense_optimizer", "variance_reduction"}
        for key, tensor in rank.dense_state.items():
            assert tensor.any(), key
            assert torch.equal(tensor, state[key]), key


@pytest.mark.parametrize(("changes", "begins_at"), [({}, 0.0), (ACCUMULATED, 0.25)], ids=["zero", "above zero"])
def test_without_optimizer_state_the_optimizers_start_fresh(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, changes: dict[str, Any], begins_at: float
):
    resolved = make_job(2, **make_warm_start(old.model, **changes))
    starts: list[StartState] = rank_pools.of(2).run(start_run, resolved, tmp_path)
    assert all((sums == begins_at).all() for sums in assemble_adagrad_sums(starts).values())
    assert not any(tensor.any() for rank in starts for tensor in rank.dense_state.values())


@pytest.mark.parametrize(("global_size", "scale"), [(128, 128), (192, 256)])
def test_sums_of_adagrad_count_earlier_samples_like_those_of_another_batch(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, global_size: int, scale: int
):
    """They are in squares of S / B times the gradient of a sample, and S is B in the earlier run."""
    resolved = make_job(2, **make_warm_start(old.path, optimizer_state=True, batch={"global_size": global_size}))
    assert resolved.gradient_scale == scale
    starts: list[StartState] = rank_pools.of(2).run(start_run, resolved, tmp_path)
    state = read_whole(get_last_checkpoint(old).path)
    for name, sums in assemble_adagrad_sums(starts).items():
        gathered = state[f"tables.optimizer.{name}"]
        torch.testing.assert_close(sums, gathered * (scale / global_size) ** 2, rtol=1e-6, atol=0, msg=name)


def test_the_start_is_an_event_that_lists_the_grown_tables(rank_pools: RankPools, old: RunDirectory, tmp_path: Path):
    rank_pools.of(2).run(start_run, make_job(2, NEW_IDS, **make_warm_start(old.path)), tmp_path)
    events = list_events(tmp_path)
    (event,) = [report for report in events if report.name == "warm_started"]
    assert event.details["from"] == str(old.path)
    assert event.details["optimizer_state"] is False
    assert event.details["tables"]["C3"] == {"rows_before": OLD_IDS, "rows_after": NEW_IDS}
    assert "C9" not in event.details["tables"], "it has 4 rows in both"
    assert "blend_left_out" not in {report.name for report in events}, "the model is not blended"


def truncate_weights(old: RunDirectory) -> None:
    weights = old.model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def flip_weights(old: RunDirectory) -> None:
    weights = old.model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-40] ^= 0x10
    weights.write_bytes(content)


def break_config(old: RunDirectory) -> None:
    (old.model / "config.json").write_text('{"model": {}, "num_dense"')


def damage_checkpoint(old: RunDirectory) -> None:
    file = next(get_last_checkpoint(old).path.glob("__1*"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")


def put_another_model(old: RunDirectory) -> None:
    """As if the last checkpoint were gone, and the one before were the newest."""
    path = old.model / "model.safetensors"
    weights = load_file(path)
    weights["dense.top.layers.0.bias"] += 1
    save_file(weights, path)
    manifest = json.loads((old.model / "manifest.json").read_text())
    manifest["files"]["model.safetensors"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["files"]["model.safetensors"]["num_bytes"] = path.stat().st_size
    (old.model / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "optimizer_state", "message"),
    [
        (truncate_weights, False, "model.safetensors: has "),
        (flip_weights, False, "model.safetensors: has changed since it was written"),
        (break_config, False, "its config.json is damaged"),
        (lambda old: shutil.rmtree(old.model), False, "contains no model: a run has one once it has succeeded"),
        (lambda old: shutil.rmtree(old.path), False, "is not a directory"),
        (
            lambda old: shutil.rmtree(old.checkpoints),
            True,
            "(valid: false, or a run in `from` that kept its last checkpoint)",
        ),
        (
            damage_checkpoint,
            True,
            "optimizer_state: the checkpoint is damaged: __1_0.distcp is damaged",
        ),
        (put_another_model, True, "its weights are not those of the model"),
    ],
)
def test_a_damaged_source_is_refused_by_all_ranks_alike(
    rank_pools: RankPools,
    old: RunDirectory,
    tmp_path: Path,
    damage: Callable[[RunDirectory], None],
    optimizer_state: bool,
    message: str,
):
    copy = RunDirectory(Path(shutil.copytree(old.path, tmp_path / "copy")))
    damage(copy)
    resolved = make_job(2, **make_warm_start(copy.path, optimizer_state))
    refused = rank_pools.of(2).run(find_refusal, resolved, tmp_path / "new")
    assert refused[0] == refused[1]
    assert message in refused[0]
    assert str(copy.path) in refused[0]
    assert "(valid: " in refused[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [32, 1]}},
            "model.top_mlp: is [32, 1], but [16, 1] in the model that the run starts from (valid: [16, 1])",
        ),
        ({"num_ids": OLD_IDS - 1}, f"data.synthetic.num_ids: is {OLD_IDS - 1}"),
        ({"dense_optimizer": {"name": "sgd"}}, 'dense_optimizer.name: is "sgd", but "adam"'),
    ],
)
def test_a_job_that_does_not_fit_the_model_is_refused_naming_the_field(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, changes: dict[str, Any], message: str
):
    num_ids = changes.pop("num_ids", OLD_IDS)
    resolved = make_job(1, num_ids, **make_warm_start(old.path, optimizer_state=True, **changes))
    (refused,) = rank_pools.of(1).run(find_refusal, resolved, tmp_path)
    assert message in refused


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"C3": 10**6}, "the table C3 has 1,000,000 rows in the model, but the data has only 200 ids"),
        ({"site": 10}, "the model has a table site, but the data has no column of that name"),
        ({"C3": None}, "the data has a column C3, but the model has no table of that name"),
    ],
)
def test_a_model_of_other_tables_is_refused_naming_one(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, tables: dict[str, int | None], message: str
):
    copy = RunDirectory(Path(shutil.copytree(old.path, tmp_path / "copy")))
    table_rows = json.loads((copy.model / "config.json").read_text())["table_rows"]
    changed = {name: num_rows for name, num_rows in {**table_rows, **tables}.items() if num_rows is not None}
    signed(copy.model, table_rows=changed)
    refused = rank_pools.of(2).run(find_refusal, make_job(2, **make_warm_start(copy.path)), tmp_path / "new")
    assert refused[0] == refused[1]
    assert refused[0].startswith(f"{copy.model}, run.warm_start.from: {message}")
