"""What a run that starts from another's model begins with, and which models it refuses."""

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

from dlrm.config import ResolvedJob, parse_job, resolve
from dlrm.data.errors import DataError
from dlrm.data.open import open_data
from dlrm.record import CheckpointDirectory, EventReport, RunDirectory, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train.build import TrainRows, build_parts, plan_tables
from dlrm.train.context import RunContext
from dlrm.train.run import run
from dlrm.train.stop_request import StopRequest
from dlrm.train.warm_start.start import start_warm
from sharding.comm.process_groups import Ranks
from sharding.embedding.initial_weights import fill_uniform
from tests.distributed.rank_pool import RankPools
from tests.distributed.read_back import read_whole
from tests.distributed.saving import local_tensors
from tests.distributed.training import copied_shards
from tests.dlrm.exported_model.made_models import signed

OLD_IDS, NEW_IDS = 200, 300


def job(world_size: int, num_ids: int = OLD_IDS, plan: str = "table_wise", **changes: Any) -> ResolvedJob:
    document = {
        "data": {"format": "synthetic", "synthetic": {"num_rows": 6000, "num_ids": num_ids}},
        "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
        "batch": {"global_size": 512},
        "dense_optimizer": {"name": "adam", "learning_rate": 0.01, "schedule": {"scaling": "none"}},
        "variance_reduction": {},
        "table_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.1},
        "sharding": {"plan": plan},
        "run": {"eval_every_fraction": 1.0},
        "resources": {"workers_per_node": world_size},
    }
    return resolve(parse_job({**document, **changes}))


def from_run(source: Path, optimizer_state: bool = False, **changes: Any) -> dict[str, Any]:
    warm_start = {"from": str(source), "optimizer_state": optimizer_state}
    return {"run": {"eval_every_fraction": 1.0, "seed": 5, "warm_start": warm_start}, **changes}


def train(ranks: Ranks, resolved: ResolvedJob, path: Path) -> dict[str, float | None]:
    directory = RunDirectory(path)
    directory.attempt(1).create()
    reporter = Reporter(directory.attempt(1), ranks.rank)
    return run(RunContext(resolved, directory, directory.attempt(1).profile, ranks, reporter, StopRequest())).metrics


@pytest.fixture(scope="module")
def old(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of two ranks that has succeeded."""
    directory = RunDirectory(tmp_path_factory.mktemp("old") / "run")
    rank_pools.of(2).run(train, job(2), directory.path)
    directory.spec.write_text(job(2).model_dump_json())
    return directory


@dataclass(frozen=True)
class Begun:
    """What one rank holds before its first step."""

    shards: list[tuple[str, int, int, torch.Tensor]]
    dense: dict[str, torch.Tensor]
    table_state: dict[str, torch.Tensor]
    """By `/<key of the table>/<name>@<place>`."""
    dense_state: dict[str, torch.Tensor]
    """Of the dense optimizer and of variance reduction, as a checkpoint names it."""


def begin(ranks: Ranks, resolved: ResolvedJob, path: Path) -> Begun | str:
    """The parts of a run just before its first step, or why there are none."""
    directory = RunDirectory(path)
    directory.attempt(1).create()
    dataset = open_data(resolved.job.data, None, None)
    plan = plan_tables(resolved, dataset.schema).plan
    parts = build_parts(resolved, dataset.schema, plan, ranks, TrainRows(dataset.train.num_rows))
    attempt = directory.attempt(1)
    context = RunContext(resolved, directory, attempt.profile, ranks, Reporter(attempt, ranks.rank), StopRequest())
    assert parts.reduction is not None
    try:
        start_warm(parts, context, dataset)
    except DataError as error:
        return str(error)
    return Begun(
        copied_shards(parts.tables),
        {name: tensor.clone() for name, tensor in parts.model.state_dict().items()},
        dict(local_tensors(parts.tables.state()["optimizer"])),
        {
            key.replace("/", "."): tensor
            for state, prefix in (
                (parts.optimizer.state_dict()["state"], "dense_optimizer.state"),
                (parts.reduction.state_dict(), "variance_reduction"),
            )
            for key, tensor in local_tensors(state, prefix)
        },
    )


def whole(pieces: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
    return torch.cat([tensor for _, tensor in sorted(pieces, key=lambda piece: piece[0])])


def tables_of(begun: list[Begun]) -> dict[str, torch.Tensor]:
    names = dict.fromkeys(name for rank in begun for name, *_ in rank.shards)
    return {
        name: whole([(row, rows) for rank in begun for other, row, _, rows in rank.shards if other == name])
        for name in names
    }


def sums_of(begun: list[Begun]) -> dict[str, torch.Tensor]:
    """What row-wise Adagrad has summed, [rows] of each table."""
    pieces: dict[str, list[tuple[int, torch.Tensor]]] = {}
    for rank in begun:
        for key, tensor in rank.table_state.items():
            name, _, place = key.rpartition("@")
            pieces.setdefault(name.removeprefix("/"), []).append((json.loads(place)[0], tensor))
    return {name: whole(found) for name, found in pieces.items()}


def fresh(name: str, num_rows: int, seed: int) -> torch.Tensor:
    table = torch.empty(num_rows, 8)
    bound = 1 / math.sqrt(num_rows)
    fill_uniform(table, table_name=name, seed=seed, row_offset=0, column_offset=0, num_columns=8, bound=bound)
    return table


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_old_rows_are_the_models_bit_for_bit_and_new_ones_are_fresh(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, world_size: int, plan: str
):
    resolved = job(world_size, NEW_IDS, plan, **from_run(old.path, optimizer_state=True))
    begun: list[Begun] = rank_pools.of(world_size).run(begin, resolved, tmp_path)
    model = load_file(old.model / "model.safetensors")
    state = read_whole(last_checkpoint(old).path)
    tables, sums = tables_of(begun), sums_of(begun)
    grown = 0
    for name, table in tables.items():
        saved = model[f"tables.{name}.weight"]
        assert torch.equal(table[: len(saved)], saved), name
        assert torch.equal(table[len(saved) :], fresh(name, len(table), seed=5)[len(saved) :]), name
        gathered = state[f"tables.optimizer.{name}"]
        assert torch.equal(sums[name][: len(saved)], gathered), name
        assert not sums[name][len(saved) :].any(), name
        grown += len(table) - len(saved)
    assert grown > 100
    assert len(tables) == 26
    for rank in begun:
        assert all(torch.equal(tensor, model[f"dense.{name}"]) for name, tensor in rank.dense.items())


def last_checkpoint(directory: RunDirectory) -> CheckpointDirectory:
    (path,) = directory.checkpoints.iterdir()
    return CheckpointDirectory(path, int(path.name.removeprefix("step-")))


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
def test_without_new_ids_and_with_optimizer_state_it_begins_as_the_old_run_ended(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, plan: str
):
    resolved = job(2, OLD_IDS, plan, **from_run(old.path, optimizer_state=True))
    begun: list[Begun] = rank_pools.of(2).run(begin, resolved, tmp_path)
    state = read_whole(last_checkpoint(old).path)
    for name, table in tables_of(begun).items():
        assert torch.equal(table, state[f"tables.weights.{name}"]), name
    for name, sums in sums_of(begun).items():
        assert sums.any(), name
        assert torch.equal(sums, state[f"tables.optimizer.{name}"]), name
    for rank in begun:
        assert {key.partition(".")[0] for key in rank.dense_state} == {"dense_optimizer", "variance_reduction"}
        for key, tensor in rank.dense_state.items():
            assert tensor.any(), key
            assert torch.equal(tensor, state[key]), key


def test_without_optimizer_state_the_optimizers_start_anew(rank_pools: RankPools, old: RunDirectory, tmp_path: Path):
    begun: list[Begun] = rank_pools.of(2).run(begin, job(2, **from_run(old.model)), tmp_path)
    assert not any(sums.any() for sums in sums_of(begun).values())
    assert not any(tensor.any() for rank in begun for tensor in rank.dense_state.values())


def test_the_sums_of_adagrad_are_brought_to_the_scale_of_another_batch(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path
):
    resolved = job(2, **from_run(old.path, optimizer_state=True, batch={"global_size": 128}))
    begun: list[Begun] = rank_pools.of(2).run(begin, resolved, tmp_path)
    state = read_whole(last_checkpoint(old).path)
    for name, sums in sums_of(begun).items():
        gathered = state[f"tables.optimizer.{name}"]
        assert torch.equal(sums, gathered / 16), name


def test_the_start_is_told_with_what_has_grown(rank_pools: RankPools, old: RunDirectory, tmp_path: Path):
    rank_pools.of(2).run(begin, job(2, NEW_IDS, **from_run(old.path)), tmp_path)
    path = RunDirectory(tmp_path).attempt(1).spool_file(0, "events")
    (told,) = [
        report
        for report in map(parse_report, SpoolReader(path).read())
        if isinstance(report, EventReport) and report.name == "warm_started"
    ]
    assert told.details["from"] == str(old.path)
    assert told.details["optimizer_state"] is False
    assert told.details["tables"]["C3"] == {"rows_before": OLD_IDS, "rows_after": NEW_IDS}
    assert "C9" not in told.details["tables"], "it has 4 rows in both"


def test_a_warm_run_that_learns_nothing_scores_what_the_model_scored(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path
):
    rates: dict[str, Any] = {
        "dense_optimizer": {"name": "sgd", "learning_rate": 1e-30},
        "table_optimizer": {"name": "sgd", "learning_rate": 1e-30},
    }
    (of_warm, _) = rank_pools.of(2).run(train, job(2, **from_run(old.path, **rates)), tmp_path)
    of_old = json.loads((old.model / "metrics.json").read_text())
    assert of_old["auc"] > 0.6
    for name in ("auc", "log_loss", "calibration"):
        assert of_warm[name] == pytest.approx(of_old[name], abs=1e-7)
    for name, weights in load_file(old.model / "model.safetensors").items():
        assert torch.equal(load_file(tmp_path / "model" / "model.safetensors")[name], weights)


def cut(old: RunDirectory) -> None:
    weights = old.model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def flip(old: RunDirectory) -> None:
    weights = old.model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-40] ^= 0x10
    weights.write_bytes(content)


def break_config(old: RunDirectory) -> None:
    (old.model / "config.json").write_text('{"model": {}, "num_dense"')


def damage_checkpoint(old: RunDirectory) -> None:
    file = next(last_checkpoint(old).path.glob("__1*"))
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
    ("damage", "optimizer_state", "said"),
    [
        (cut, False, "model.safetensors: has "),
        (flip, False, "model.safetensors: is not what was written"),
        (break_config, False, "its config.json is damaged"),
        (lambda old: shutil.rmtree(old.model), False, "holds no model: a run has one once it has succeeded"),
        (lambda old: shutil.rmtree(old.path), False, "is no directory"),
        (lambda old: shutil.rmtree(old.checkpoints), True, "run.warm_start.optimizer_state: there is no checkpoint"),
        (
            damage_checkpoint,
            True,
            "optimizer_state: the checkpoint is not whole: __1_0.distcp is damaged",
        ),
        (put_another_model, True, "it is of other weights than the model"),
    ],
)
def test_what_is_not_whole_is_refused_by_all_ranks_alike(
    rank_pools: RankPools,
    old: RunDirectory,
    tmp_path: Path,
    damage: Callable[[RunDirectory], None],
    optimizer_state: bool,
    said: str,
):
    copy = RunDirectory(Path(shutil.copytree(old.path, tmp_path / "copy")))
    damage(copy)
    refused = rank_pools.of(2).run(begin, job(2, **from_run(copy.path, optimizer_state)), tmp_path / "new")
    assert refused[0] == refused[1]
    assert said in refused[0]
    assert str(copy.path) in refused[0]
    assert "(valid: " in refused[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model": {"embedding_dim": 4, "bottom_mlp": [16, 4], "top_mlp": [16, 1]}},
            "embedding_dim: is 4, and 8",
        ),
        (
            {"model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [32, 1]}},
            "model.top_mlp: is [32, 1], and [16, 1] in the model that the run starts from (valid: [16, 1])",
        ),
        ({"num_ids": OLD_IDS - 1}, f"data.synthetic.num_ids: is {OLD_IDS - 1}"),
        ({"dense_optimizer": {"name": "sgd"}}, "dense_optimizer.name: is 'sgd', and 'adam'"),
        ({"table_optimizer": {"name": "sgd"}}, "table_optimizer.name: is 'sgd', and 'rowwise_adagrad'"),
    ],
)
def test_a_job_that_does_not_fit_the_model_is_refused_naming_the_field(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, changes: dict[str, Any], said: str
):
    num_ids = changes.pop("num_ids", OLD_IDS)
    resolved = job(1, num_ids, **from_run(old.path, optimizer_state=True, **changes))
    (refused,) = rank_pools.of(1).run(begin, resolved, tmp_path)
    assert said in refused


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"C3": 10**6}, "the table C3 has 1,000,000 rows in the model, and the data has ids for 200 only"),
        ({"site": 10}, "the model has a table site, and the data has no column of that name"),
        ({"C3": None}, "the data has a column C3, for which the model has no table"),
    ],
)
def test_a_model_of_other_tables_is_refused_naming_one(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path, tables: dict[str, int | None], said: str
):
    copy = RunDirectory(Path(shutil.copytree(old.path, tmp_path / "copy")))
    known = json.loads((copy.model / "config.json").read_text())["table_rows"]
    changed = {name: num_rows for name, num_rows in {**known, **tables}.items() if num_rows is not None}
    signed(copy.model, table_rows=changed)
    refused = rank_pools.of(2).run(begin, job(2, **from_run(copy.path)), tmp_path / "new")
    assert refused[0] == refused[1]
    assert refused[0].startswith(f"{copy.model}, run.warm_start.from: {said}")


def test_a_model_alone_has_no_optimizer_state_and_the_fix_is_named(
    rank_pools: RankPools, old: RunDirectory, tmp_path: Path
):
    (refused,) = rank_pools.of(1).run(begin, job(1, **from_run(old.model, optimizer_state=True)), tmp_path)
    assert "run.warm_start.optimizer_state: there is no checkpoint to take it from" in refused
    assert "(valid: false, or `from` a run that has kept its last checkpoint)" in refused


def test_other_optimizers_may_start_anew(rank_pools: RankPools, old: RunDirectory, tmp_path: Path):
    resolved = job(1, **from_run(old.path, dense_optimizer={"name": "sgd"}, table_optimizer={"name": "sgd"}))
    (begun,) = rank_pools.of(1).run(begin, resolved, tmp_path)
    assert isinstance(begun, Begun)
