"""Deltas of real runs: a model that takes them is the run's model, whatever happens on the way."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dlrm import load_model
from dlrm.config import ConfigError, ResolvedJob, parse_job
from dlrm.data.open import open_data
from dlrm.exported_model.delta import DeltaError, compact, list_deltas, name_delta, read_delta
from dlrm.exported_model.export import read_model
from dlrm.exported_model.model import SavedModel
from dlrm.programs.compact import main as run_compact
from dlrm.programs.compress import main as compress
from dlrm.record import DELTA_FAILED, DELTA_WRITTEN, RunDirectory, find_newest_checkpoint
from dlrm.train.deltas import DeltaWriter
from tests.dlrm.train.test_run import DOCUMENT, list_events, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

LAST = {"eval_every_fraction": 0.25, "yardsticks": "none", "deltas": True, "keep_model": "last"}
BEST = {**LAST, "keep_model": "best"}
DATA = {"format": "synthetic", "synthetic": {"num_rows": 8000, "num_ids": 20_000}}
"""So many ids that a few steps change a part of the rows: large deltas begin a new base."""


def make_job(**changes: Any) -> ResolvedJob:
    return resolve_job(data=DATA, **changes)


def follow(path: Path) -> SavedModel:
    """Load the base of a run, and apply all its deltas."""
    model = load_model(RunDirectory(path).deltas / "base")
    for delta in list_deltas(RunDirectory(path).deltas):
        model.apply_delta(delta)
    return model


def is_equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    expected = other.state_dict()
    return all(torch.equal(tensor, expected[name]) for name, tensor in one.state_dict().items())


def run_in_parts(rank_pools: RankPools, path: Path, *looks: int | None, **changes: Any) -> None:
    """Run attempts that are stopped after so many looks; the stop leaves a checkpoint. None: to the end."""
    for number, num_looks in enumerate(looks, start=1):
        rank_pools.of(2).run(run_attempt, path, number, make_job(**changes), num_looks)


@pytest.fixture(scope="module")
def started(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was stopped, with a base and two deltas."""
    path = tmp_path_factory.mktemp("started") / "run"
    run_in_parts(rank_pools, path, 4, 4, 3, run=LAST)
    return path


@pytest.fixture(scope="module")
def finished(rank_pools: RankPools, started: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return that run at its end, with a base and three deltas."""
    path = tmp_path_factory.mktemp("finished") / "run"
    shutil.copytree(started, path)
    rank_pools.of(2).run(run_attempt, path, 4, make_job(run=LAST), None)
    return path


@pytest.mark.parametrize(
    ("num_ranks", "changes"),
    [
        (1, {"run": LAST, "resources": {"workers_per_node": 1}}),
        pytest.param(2, {"run": LAST}, marks=pytest.mark.slow),
        (2, {"run": LAST, "averaging": {"half_life_fraction": 0.1}}),
        (2, {"run": BEST, "dense_optimizer": {"name": "adam", "learning_rate": 0.3}}),
    ],
    ids=["one rank", "two ranks", "average", "best"],
)
def test_a_model_that_takes_each_delta_is_that_of_each_checkpoint_and_at_the_end_the_exported_one(
    rank_pools: RankPools, tmp_path: Path, num_ranks: int, changes: dict[str, Any]
) -> None:
    job, directory, fresh = make_job(**changes), RunDirectory(tmp_path), None
    num_taken = 0
    for number, num_looks in enumerate((4, 4, 3, None), start=1):
        rank_pools.of(num_ranks).run(run_attempt, tmp_path, number, job, num_looks)
        if fresh is None:
            fresh = load_model(directory.deltas / "base")
        else:
            for delta in list_deltas(directory.deltas)[num_taken:]:
                fresh.apply_delta(delta)
                num_taken += 1
        if num_looks is not None:
            checkpoint = find_newest_checkpoint(directory.checkpoints)
            assert checkpoint is not None
            schema = open_data(job.job.data, None, None).schema
            assert is_equal(fresh.module, read_model(checkpoint.path, job.job, schema))
    assert fresh is not None
    exported = load_model(directory.model)
    assert is_equal(fresh.module, exported.module)
    events = [event for number in (1, 2, 3, 4) for event in list_events(tmp_path, number)]
    orders = [event.details["order"] for event in events if event.name == DELTA_WRITTEN]
    assert orders == [*range(num_taken + 1)]
    assert num_taken >= 3
    assert not [event for event in events if event.name == DELTA_FAILED]
    assert not list(directory.deltas.glob("latest*"))


def test_a_run_that_goes_on_from_an_older_checkpoint_or_was_killed_between_two_files_still_ends_at_its_model(
    rank_pools: RankPools, started: Path, tmp_path: Path
) -> None:
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    directory = RunDirectory(tmp_path)
    newest = find_newest_checkpoint(directory.checkpoints)
    assert newest is not None
    shutil.rmtree(newest.path)
    # As a kill leaves it before the delta has its name.
    latest = directory.deltas / "latest-000002.safetensors"
    shutil.copy(latest, directory.deltas / "latest-000003.safetensors")
    (directory.deltas / "delta-000003.part").write_bytes(b"half")
    # And as one leaves it afterwards.
    shutil.copy(latest, directory.deltas / "latest-000001.safetensors")
    rank_pools.of(2).run(run_attempt, tmp_path, 4, make_job(run=LAST), None)
    assert [path.name for path in list_deltas(directory.deltas)] == [name_delta(number) for number in (1, 2, 3)]
    assert is_equal(follow(tmp_path).module, load_model(directory.model).module)


def test_a_run_whose_last_state_is_lost_begins_with_a_new_base(rank_pools: RankPools, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    run_in_parts(rank_pools, tmp_path, 4, 4, run=LAST)
    old = load_model(directory.deltas / "base")
    (directory.deltas / "latest-000001.safetensors").unlink()
    for number, looks in ((3, 3), (4, None)):
        rank_pools.of(2).run(run_attempt, tmp_path, number, make_job(run=LAST), looks)
    assert len(list_deltas(directory.deltas)) == 1
    assert is_equal(follow(tmp_path).module, load_model(directory.model).module)
    with pytest.raises(DeltaError, match="is of another base than this model"):
        old.apply_delta(directory.deltas / name_delta(1))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def shorten(path: Path) -> None:
    # Anew: the weights of a base may be a link to the state that the next delta follows.
    content = path.read_bytes()[:-3]
    path.unlink()
    path.write_bytes(content)


def enlarge(path: Path) -> None:
    """Make a delta that is not the newest larger than two bases; only its size counts."""
    base = path.parent / "base" / "model.safetensors"
    path.write_bytes(path.read_bytes() + bytes(2 * base.stat().st_size))


@pytest.mark.parametrize(
    ("spoil", "name", "said"),
    [
        (shorten, "latest-000002.safetensors", "latest-000002.safetensors cannot be read"),
        (damage, name_delta(2), "delta-000002.safetensors: has changed"),
        (shorten, "base/model.safetensors", "base/model.safetensors cannot be read: has"),
        (shutil.rmtree, "base", "deltas/base is missing"),
        (enlarge, name_delta(1), "the deltas before it take"),
    ],
    ids=["latest", "delta", "short base", "no base", "large"],
)
def test_what_cannot_be_read_or_is_large_begins_a_new_base_and_the_event_says_so(
    rank_pools: RankPools, started: Path, tmp_path: Path, spoil: Callable[[Path], None], name: str, said: str
) -> None:
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    directory = RunDirectory(tmp_path)
    follower = load_model(directory.deltas / "base")
    spoil(directory.deltas / name)
    rank_pools.of(2).run(run_attempt, tmp_path, 4, make_job(run=LAST), 2)
    rank_pools.of(2).run(run_attempt, tmp_path, 5, make_job(run=LAST), None)
    events = [event for number in (4, 5) for event in list_events(tmp_path, number) if event.name == DELTA_WRITTEN]
    assert [event.details["order"] for event in events] == [0, 1]
    assert "deltas begin anew" in events[0].message
    assert said in events[0].message
    assert [path.name for path in list_deltas(directory.deltas)] == [name_delta(1)]
    assert is_equal(follow(tmp_path).module, load_model(directory.model).module)
    with pytest.raises(DeltaError, match=r"is of another base than this model .* or load base/ again"):
        follower.apply_delta(directory.deltas / name_delta(1))


def test_a_kill_after_a_new_base_was_written_mixes_it_with_no_delta_of_the_earlier_one(
    rank_pools: RankPools, started: Path, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    deltas = RunDirectory(tmp_path).deltas
    shutil.rmtree(deltas / "base")
    shutil.copytree(RunDirectory(finished).model, deltas / "base")
    (deltas / "latest-000002.safetensors").unlink()
    rank_pools.of(2).run(run_attempt, tmp_path, 4, make_job(run=LAST), None)
    assert len(list_deltas(deltas)) == 1
    assert is_equal(follow(tmp_path).module, load_model(RunDirectory(tmp_path).model).module)


def test_the_end_of_a_run_makes_its_model_the_base_if_deltas_cannot_lead_to_it(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    directory, job = RunDirectory(tmp_path), make_job(run=LAST)
    writer = DeltaWriter(directory.deltas, job, open_data(job.job.data, None, None))
    assert writer.finish(directory.model) is None
    assert len(list_deltas(directory.deltas)) == 3
    damage(directory.deltas / name_delta(3))
    event = writer.finish(directory.model)
    assert event is not None
    assert "delta-000003.safetensors: has changed" in event.message
    assert not list_deltas(directory.deltas)
    assert is_equal(follow(tmp_path).module, load_model(directory.model).module)
    assert writer.finish(directory.model) is None


def test_a_delta_holds_the_changed_rows_alone(finished: Path) -> None:
    deltas = RunDirectory(finished).deltas
    before, after = load_file(deltas / "base" / "model.safetensors"), follow(finished).module.state_dict()
    delta = read_delta(deltas / name_delta(1))
    tables = [name for name in before if name.startswith("tables.")]
    assert 0 < delta.record.num_rows < sum(len(before[name]) for name in tables)
    for name in tables:
        if name in delta.tensors:
            rows = delta.tensors[f"rows.{name.removeprefix('tables.').removesuffix('.weight')}"]
            assert (before[name][rows] != delta.tensors[name]).any(dim=1).all()
    assert {name for name in before if name.startswith("dense.")} <= delta.tensors.keys()
    assert not torch.equal(before[tables[-1]], after[tables[-1]])


def test_deltas_that_are_missing_foreign_repeated_damaged_or_none_are_refused_and_change_nothing(
    rank_pools: RankPools, finished: Path, tmp_path: Path
) -> None:
    deltas = RunDirectory(finished).deltas
    run_in_parts(rank_pools, tmp_path / "other", 5, None, run={**LAST, "seed": 3})
    damaged, none = tmp_path / name_delta(1), tmp_path / "weights.safetensors"
    tensors = {name: tensor.clone() for name, tensor in read_delta(deltas / name_delta(1)).tensors.items()}
    content = bytearray((deltas / name_delta(1)).read_bytes())
    content[-3] ^= 1
    damaged.write_bytes(content)
    save_file(tensors, none)
    model, base = load_model(deltas / "base"), load_model(deltas / "base")
    for path, said in (
        (deltas / name_delta(2), "delta-000001.safetensors is missing before it (valid: take that one first)"),
        (RunDirectory(tmp_path / "other").deltas / name_delta(1), "is of another base than this model"),
        (damaged, "has changed since it was written"),
        (none, "is no delta"),
        (deltas / "base" / "config.json", "cannot be read"),
        (tmp_path / name_delta(9), "no such file"),
    ):
        with pytest.raises(DeltaError) as caught:
            model.apply_delta(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert said in str(caught.value)
        assert is_equal(model.module, base.module)
    model.apply_delta(deltas / name_delta(1))
    with pytest.raises(DeltaError, match=r"has taken delta-000001\.safetensors already \(valid: delta-000002"):
        model.apply_delta(deltas / name_delta(1))


def test_a_model_whose_tables_were_replaced_takes_no_deltas(finished: Path) -> None:
    deltas = RunDirectory(finished).deltas
    model = load_model(deltas / "base")
    model.load_torchrec_tables(load_model(RunDirectory(finished).model).make_torchrec_tables().state_dict())
    with pytest.raises(DeltaError, match="one with other tables takes no deltas"):
        model.apply_delta(deltas / name_delta(1))


def test_a_compressed_model_takes_no_deltas_even_if_it_is_pruned_alone(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltas = RunDirectory(finished).deltas
    compact(deltas / "base", list_deltas(deltas)[:1], tmp_path / "model")
    options = ["--tables", "fp32", "--dense", "fp32", "--prune", "0.5", "--output", str(tmp_path / "small")]
    monkeypatch.setattr("sys.argv", ["compress", *options, "--rows", "100", "--", str(tmp_path / "model")])
    assert compress() == 0
    model = load_model(tmp_path / "small")
    assert model.config.position is None
    with pytest.raises(DeltaError, match="a compressed model or one with other tables takes no deltas"):
        model.apply_delta(deltas / name_delta(2))
    with pytest.raises(DeltaError, match="a compressed model takes no deltas"):
        compact(tmp_path / "small", [deltas / name_delta(2)], tmp_path / "more")


def test_a_compacted_model_is_the_one_that_took_its_deltas_and_takes_the_next(finished: Path, tmp_path: Path) -> None:
    deltas = RunDirectory(finished).deltas
    compact(deltas / "base", list_deltas(deltas)[:2], tmp_path / "model")
    compacted, expected = load_model(tmp_path / "model"), load_model(deltas / "base")
    for path in list_deltas(deltas)[:2]:
        expected.apply_delta(path)
    assert is_equal(compacted.module, expected.module)
    assert compacted.config.step == expected.config.step == read_delta(deltas / name_delta(2)).record.step
    assert not compacted.metrics
    step = load_model(deltas / "base").config.step
    assert f"Every figure in this card is of the model of step {step}" in (tmp_path / "model/MODEL_CARD.md").read_text()
    compacted.apply_delta(deltas / name_delta(3))
    assert is_equal(compacted.module, load_model(RunDirectory(finished).model).module)
    with pytest.raises(DeltaError, match=r"delta-000001\.safetensors is missing before it"):
        compact(deltas / "base", list_deltas(deltas)[1:], tmp_path / "more")
    assert not (tmp_path / "more").exists()


def test_more_deltas_than_there_are_cannot_be_compacted(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deltas = RunDirectory(finished).deltas
    for until, code in (("99", 64), ("2", 0)):
        arguments = ["compact", str(deltas), "--output", str(tmp_path / "model"), "--until", until]
        monkeypatch.setattr("sys.argv", arguments)
        assert run_compact() == code
    told = capsys.readouterr()
    assert f"--until 99: {deltas} has 3 deltas, the last of them delta-000003.safetensors (valid: 0 to 3)" in told.err
    assert json.loads(told.out)["num_deltas"] == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run": {"deltas": True, "blend": "logistic"}}, "run.blend: adds a part to the last model"),
        (
            {"run": {"deltas": True, "recalibrate": "platt", "validation_fraction": 0.1}},
            "run.recalibrate: adds a map to the last model",
        ),
        ({"run": {"deltas": True}, "resources": {"nodes": 2}}, "resources.nodes: deltas need the files of all ranks"),
    ],
)
def test_what_no_delta_could_carry_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_job({**DOCUMENT, **changes})
    assert said in str(caught.value)
    assert "or run.deltas false" in str(caught.value)
