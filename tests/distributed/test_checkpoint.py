"""The content of checkpoints, and checkpoints that do not count."""

import errno
import gc
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from dlrm.checkpoint import CheckpointError
from dlrm.checkpoint.find import find_verified_checkpoint
from dlrm.checkpoint.keep import remove_old_checkpoints
from dlrm.checkpoint.memory_headroom import count_free_bytes
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.saver import Saver, SaveSettings
from dlrm.checkpoint.sharing import DirectoryRanks
from dlrm.data.errors import DataError
from dlrm.record import COMPLETE, AttemptDirectory, CheckpointDirectory, RunDirectory, list_checkpoints
from dlrm.reporting.reporter import Reporter
from dlrm.train.batch import to_device
from hostinfo.process_memory import get_bytes_below_peak, reset_peak
from sharding.comm.collectives import broadcast_from_rank0
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, draw_batches
from tests.distributed.saving import NEVER_SAVE, ResumedRun, make_identity, read_events, resume_run, train_up_to
from tests.distributed.training import TrainingSetting
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

SETTING = TrainingSetting(256, 64, "rowwise_adagrad", dense_rate=0.05, table_rate=0.01)
ALWAYS = SaveSettings(every_seconds=1e-9, num_kept=3, memory_bytes=2**40, ranks_per_node=4)
NAMES = ["step-00000002", "step-00000004"]


def draw_setting_batches(number: int) -> list[GlobalBatch]:
    return draw_batches(number, 256, [rows for _, rows in SETTING.table_rows])


def list_checkpoint_names(directory: Path) -> list[str]:
    return sorted(path.name for path in RunDirectory(directory).checkpoints.iterdir())


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [2, 4])
def test_a_checkpoint_holds_the_same_however_many_ranks_wrote_it(
    rank_pools: RankPools, tmp_path: Path, world_size: int, plan: str
):
    setting = TrainingSetting(256, 64, "rowwise_adagrad", plan, dense_rate=0.05, table_rate=0.01)
    rank_pools.of(1).run(train_up_to, tmp_path / "one", SETTING, draw_setting_batches(4), 4)
    rank_pools.of(world_size).run(train_up_to, tmp_path / "many", setting, draw_setting_batches(4), 4)

    expected, found = (read_whole(RunDirectory(tmp_path / name).checkpoint(4)) for name in ("one", "many"))
    for kind in ("tables.weights", "tables.optimizer", "dense.", "dense_optimizer.", "progress"):
        assert any(name.startswith(kind) for name in found), kind
    for name, value in expected.items():
        if isinstance(value, torch.Tensor) and not name.startswith("random"):
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)
    progress = json.loads(found["progress"])
    assert (progress["step"], progress["num_samples"]) == (4, 1024)
    assert sum(name.startswith("random.") for name in found) == world_size


def test_complete_lists_every_file_of_all_ranks_and_the_identity_of_the_run(rank_pools: RankPools, tmp_path: Path):
    rank_pools.of(2).run(train_up_to, tmp_path, SETTING, draw_setting_batches(2), 2)
    path = RunDirectory(tmp_path).checkpoint(2)
    manifest = CheckpointDirectory(path, 2).read_manifest()
    assert sorted([*manifest.files, COMPLETE]) == sorted(file.name for file in path.iterdir())
    assert (manifest.step, manifest.num_steps, manifest.num_samples, manifest.world_size) == (2, 100, 512, 2)
    assert manifest.identity["batch.global_size"] == 256
    assert manifest.identity["gradient_scale"] == 256.0
    assert not any(field.startswith(("resources", "sharding.plan", "name")) for field in manifest.identity)


def list_damages(path: Path) -> dict[str, Callable[[], object]]:
    """Every way to damage every file of a checkpoint."""

    def flip(file: Path, position: int) -> None:
        content = bytearray(file.read_bytes())
        content[position] ^= 0x10
        file.write_bytes(content)

    damages: dict[str, Callable[[], object]] = {}
    for file in sorted(path.iterdir()):
        size = file.stat().st_size
        damages[f"{file.name} cut by a byte"] = lambda file=file: file.write_bytes(file.read_bytes()[:-1])
        damages[f"{file.name} emptied"] = lambda file=file: file.write_bytes(b"")
        damages[f"{file.name} removed"] = file.unlink
        for part in (0.0, 0.3, 0.6, 0.999):
            position = int(part * size)
            damages[f"{file.name} flipped at {position}"] = lambda file=file, position=position: flip(file, position)
    return damages


def test_a_checkpoint_damaged_in_any_file_is_never_loaded_and_the_one_before_always(
    rank_pools: RankPools, tmp_path: Path
):
    good = tmp_path / "good"
    rank_pools.of(2).run(train_up_to, good, SETTING, draw_setting_batches(4), 2)
    rank_pools.of(2).run(train_up_to, good, SETTING, draw_setting_batches(4), 4)
    assert list_checkpoint_names(good) == NAMES
    damages = list(list_damages(RunDirectory(good).checkpoint(4)))
    assert len(damages) == 7 * 4, "two ranks, the metadata and COMPLETE"
    directories = [tmp_path / f"damaged-{number}" for number in range(len(damages))]
    for directory, damage in zip(directories, damages, strict=True):
        shutil.copytree(good / "checkpoints", directory / "checkpoints")
        list_damages(RunDirectory(directory).checkpoint(4))[damage]()

    def find_all(ranks: Ranks) -> list[int]:
        steps: list[int] = []
        for directory in directories:
            reporter = Reporter(AttemptDirectory(directory / "attempt-1"), ranks.rank)
            identity = make_identity(SETTING, ranks.world_size)
            found = find_verified_checkpoint(RunDirectory(directory).checkpoints, identity, ranks, reporter)
            steps.append(found.manifest.step if found else 0)
        return steps

    assert rank_pools.of(2).run(find_all) == [[2] * len(damages)] * 2
    for directory, damage in zip(directories, damages, strict=True):
        (event,) = read_events(directory, "checkpoint_passed_over")
        assert event.details == {"step": 4}, damage
        assert str(RunDirectory(directory).checkpoint(4)) in event.message


def test_without_a_sound_checkpoint_the_run_starts_over_and_says_so(rank_pools: RankPools, tmp_path: Path):
    rank_pools.of(2).run(train_up_to, tmp_path, SETTING, draw_setting_batches(2), 2)
    (RunDirectory(tmp_path).checkpoint(2) / COMPLETE).unlink()
    (piece, _) = rank_pools.of(2).run(train_up_to, tmp_path, SETTING, draw_setting_batches(2), 1, False)
    assert piece.started_at == 0
    assert "it is incomplete" in read_events(tmp_path, "checkpoint_passed_over")[0].message


def find_resume_error(ranks: Ranks, directory: Path, setting: TrainingSetting) -> str:
    try:
        resume_run(ranks, directory, setting)
    except (DataError, CheckpointError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_checkpoint_of_other_settings_is_refused_and_every_differing_field_named(
    rank_pools: RankPools, tmp_path: Path
):
    rank_pools.of(2).run(train_up_to, tmp_path, SETTING, draw_setting_batches(2), 2)
    other = TrainingSetting(512, 64, "sgd", seed=8)
    for error in rank_pools.of(2).run(find_resume_error, tmp_path, other):
        assert error.startswith(f"DataError: {RunDirectory(tmp_path).checkpoint(2)}: ")
        for field in ("batch.global_size is 512, but was 256", "run.seed is 8, but was 7", "table_optimizer.name"):
            assert field in error
        assert "chunk_size" not in error


def test_a_checkpoint_of_a_run_on_other_rows_is_refused(rank_pools: RankPools, tmp_path: Path):
    rank_pools.of(2).run(train_up_to, tmp_path, SETTING, draw_setting_batches(1), 1)

    def run(ranks: Ranks) -> str:
        label = RunIdentity.from_job(SETTING.resolve_job(ranks.world_size), data_checksum="of other rows")
        reporter = Reporter(AttemptDirectory(tmp_path / "attempt-2"), ranks.rank)
        with pytest.raises(DataError) as caught:
            find_verified_checkpoint(RunDirectory(tmp_path).checkpoints, label, ranks, reporter)
        return str(caught.value)

    for error in rank_pools.of(2).run(run):
        assert "the checkpoint belongs to a run with other settings: data has other rows" in error


def test_a_checkpoint_in_the_background_holds_the_step_that_it_was_taken_after(rank_pools: RankPools, tmp_path: Path):
    pool, batches = rank_pools.of(2), draw_setting_batches(6)
    pool.run(train_up_to, tmp_path / "expected", SETTING, batches, 1)

    def run(ranks: Ranks) -> None:
        trainer = resume_run(ranks, tmp_path / "behind", SETTING, ALWAYS)
        with trainer.saver:
            trainer.step(batches[0], ranks)
            for batch in batches[1:]:
                share = batch.cut_share(ranks.rank, ranks.world_size)
                trainer.parts.step(to_device(share, ranks.device), SETTING.rates_at(0))

    pool.run(run)
    assert list_checkpoint_names(tmp_path / "behind") == ["step-00000001"]
    expected, found = (read_whole(RunDirectory(tmp_path / name).checkpoint(1)) for name in ("expected", "behind"))
    for name, value in expected.items():
        if isinstance(value, torch.Tensor) and not name.startswith("random"):
            assert torch.equal(found[name], value), name


def save_each_step(ranks: Ranks, directory: Path, settings: SaveSettings, num_steps: int) -> None:
    trainer = resume_run(ranks, directory, SETTING, settings)
    with trainer.saver:
        for batch in draw_setting_batches(num_steps)[trainer.progress.step :]:
            trainer.step(batch, ranks)
            trainer.saver.save(trainer.progress)


def test_the_newest_checkpoints_stay_and_no_others(rank_pools: RankPools, tmp_path: Path):
    rank_pools.of(2).run(save_each_step, tmp_path, NEVER_SAVE, 5)
    assert list_checkpoint_names(tmp_path) == ["step-00000003", "step-00000004", "step-00000005"]
    # One that is damaged is no checkpoint, and goes once there is a newer one; so do later ones that were passed over.
    (RunDirectory(tmp_path).checkpoint(4) / COMPLETE).write_text("nonsense")
    later = RunDirectory(tmp_path).checkpoint(9)
    shutil.copytree(RunDirectory(tmp_path).checkpoint(5), later)
    rank_pools.of(2).run(save_each_step, tmp_path, NEVER_SAVE, 6)
    assert [path.step for path in list_checkpoints(RunDirectory(tmp_path).checkpoints)] == [6, 5, 3]


LARGE = TrainingSetting(256, 64, "rowwise_adagrad", table_rows=(("a", 1_000_000), ("b", 1_000_000), ("c", 300)))
LARGE_BYTES = 2_000_000 * 16 * 4


def make_saver(
    trainer: ResumedRun,
    directory: Path,
    ranks: Ranks,
    settings: SaveSettings,
    sharers: DirectoryRanks | None = None,
) -> Saver:
    """Make a saver of the LARGE run of `trainer`."""
    parts, run_directory = trainer.parts, RunDirectory(directory)
    state = parts.make_state(ranks)
    reporter = Reporter(run_directory.attempt(1), ranks.rank)
    identity = make_identity(LARGE, ranks.world_size)
    return Saver(run_directory, state, identity, ranks, reporter, settings, sharers=sharers)


@pytest.mark.parametrize("occasion", ["at a stop", "behind, without room"])
def test_a_checkpoint_that_training_waits_for_is_written_without_a_copy(
    rank_pools: RankPools, tmp_path: Path, occasion: str
):
    def run(ranks: Ranks) -> int:
        trainer = resume_run(ranks, tmp_path, LARGE, SaveSettings(1e-9, 3, memory_bytes=0, ranks_per_node=2))
        before = _get_resident_bytes()
        reset_peak()
        if occasion == "at a stop":
            trainer.saver.save(trainer.progress)
        else:
            trainer.saver.save_async(trainer.progress)
        return _get_resident_bytes() + get_bytes_below_peak() - before

    extra_bytes = sum(rank_pools.of(2).run(run))
    assert list_checkpoint_names(tmp_path) == ["step-00000000"]
    assert extra_bytes < LARGE_BYTES / 2


@pytest.mark.slow
def test_a_copy_must_fit_into_the_memory_that_the_largest_step_so_far_leaves(rank_pools: RankPools, tmp_path: Path):
    def run(ranks: Ranks) -> bool:
        reset_peak()
        trainer = resume_run(ranks, tmp_path, LARGE, NEVER_SAVE)
        free = broadcast_from_rank0(ranks, count_free_bytes(2**40, enough_bytes=2**40))
        used = 2**40 - free
        room = SaveSettings(1e-9, 3, memory_bytes=used + 2 * LARGE_BYTES, ranks_per_node=2)
        trainer.saver = resume_run(ranks, tmp_path, LARGE, room).saver
        gc.collect()
        reset_peak()
        # As large as what is left.
        step = torch.ones(LARGE_BYTES // 2)
        del step
        with trainer.saver:
            trainer.saver.save_async(trainer.progress)
            return trainer.saver.is_idle

    assert rank_pools.of(2).run(run) == [True, True], "nothing is written behind"
    assert len(read_events(tmp_path, "checkpoint_waits")) == 1


@pytest.mark.slow
def test_a_copy_that_is_gone_takes_no_room_from_the_next(rank_pools: RankPools, tmp_path: Path):
    def run(ranks: Ranks) -> None:
        trainer = resume_run(ranks, tmp_path, LARGE, NEVER_SAVE)
        gc.collect()
        reset_peak()
        used = 2**40 - broadcast_from_rank0(ranks, count_free_bytes(2**40, enough_bytes=2**40))
        room = SaveSettings(1e9, 3, memory_bytes=used + int(1.7 * LARGE_BYTES), ranks_per_node=2)
        with make_saver(trainer, tmp_path, ranks, room) as saver:
            for step in (1, 2, 3):
                trainer.progress.step = step
                saver.save_async(trainer.progress)
                while not saver.is_idle:
                    time.sleep(0.01)

    rank_pools.of(2).run(run)
    assert len(read_events(tmp_path, "checkpoint_saved")) == 3
    assert read_events(tmp_path, "checkpoint_waits") == []


@pytest.mark.parametrize("ranks_per_node", [pytest.param(4, marks=pytest.mark.slow), 2])
def test_the_copies_of_a_node_need_room_on_that_node_alone(rank_pools: RankPools, tmp_path: Path, ranks_per_node: int):
    def run(ranks: Ranks) -> None:
        trainer = resume_run(ranks, tmp_path, LARGE, NEVER_SAVE)
        gc.collect()
        reset_peak()
        # The ranks of the other node are this machine's too: they count as used, and their copies take no room.
        used = 2**40 - broadcast_from_rank0(ranks, count_free_bytes(2**40, enough_bytes=2**40))
        room = SaveSettings(1e-9, 3, used + int(0.75 * LARGE_BYTES), ranks_per_node)
        with make_saver(trainer, tmp_path, ranks, room) as saver:
            saver.save_async(trainer.progress)
            while not saver.is_idle:
                time.sleep(0.01)

    rank_pools.of(4).run(run)
    assert len(read_events(tmp_path, "checkpoint_saved")) == 1
    waits = [event.details["copy_bytes"] for event in read_events(tmp_path, "checkpoint_waits")]
    # A table's row has a sum beside its 16 values.
    assert [copy_bytes / LARGE_BYTES for copy_bytes in waits] == (
        [pytest.approx(17 / 16, rel=0.01)] if ranks_per_node == 4 else []
    )


def test_a_disk_needs_room_for_the_files_of_its_ranks_alone(rank_pools: RankPools, tmp_path: Path):
    def run(ranks: Ranks) -> None:
        trainer = resume_run(ranks, tmp_path / str(ranks.rank), LARGE, NEVER_SAVE)
        saver = make_saver(trainer, tmp_path / str(ranks.rank), ranks, NEVER_SAVE, DirectoryRanks(ranks.rank, 0, 1))
        usage = shutil.disk_usage(tmp_path)
        # The files of one rank fit, and those of both do not.
        shutil.disk_usage = lambda _: usage._replace(free=int(0.75 * LARGE_BYTES))
        try:
            saver.save(trainer.progress)
        finally:
            shutil.disk_usage = disk_usage

    disk_usage = shutil.disk_usage
    rank_pools.of(2).run(run)
    assert [list_checkpoint_names(tmp_path / str(rank)) for rank in (0, 1)] == [["step-00000000"]] * 2


def _get_resident_bytes() -> int:
    return psutil.Process().memory_info().rss


def test_without_room_for_a_copy_training_waits_and_says_so(rank_pools: RankPools, tmp_path: Path):
    short = SaveSettings(every_seconds=1e-9, num_kept=3, memory_bytes=0, ranks_per_node=2)

    def run(ranks: Ranks) -> list[str]:
        trainer = resume_run(ranks, tmp_path, SETTING, short)
        with trainer.saver:
            trainer.step(draw_setting_batches(1)[0], ranks)
            return list_checkpoint_names(tmp_path)

    assert rank_pools.of(2).run(run) == [["step-00000001"]] * 2
    assert "resources.memory" in read_events(tmp_path, "checkpoint_waits")[0].message
    (saved,) = read_events(tmp_path, "checkpoint_saved")
    assert saved.details["stall_seconds"] == saved.details["seconds"]


def test_a_checkpoint_in_the_background_that_fails_is_reported_and_training_continues(
    rank_pools: RankPools, tmp_path: Path
):
    RunDirectory(tmp_path).checkpoints.write_text("a file where the directory should be")

    def run(ranks: Ranks) -> tuple[int, str]:
        trainer = resume_run(ranks, tmp_path, SETTING, ALWAYS)
        with trainer.saver:
            for batch in draw_setting_batches(40):
                trainer.step(batch, ranks)
            try:
                trainer.saver.save(trainer.progress)
            except CheckpointError as error:
                return trainer.progress.step, str(error)
        return trainer.progress.step, ""

    for step, error in rank_pools.of(2).run(run):
        assert step == 40
        assert error.startswith(f"{tmp_path}/checkpoints/step-00000040: the checkpoint cannot be written, on rank 0: ")
        assert "Not a directory" in error or "File exists" in error
    events = read_events(tmp_path, "checkpoint_failed")
    assert events
    assert "training continues" in events[0].message


def test_a_step_that_has_a_checkpoint_is_not_written_again(rank_pools: RankPools, tmp_path: Path):
    """Else a kill in the middle would cost the only one."""

    def run(ranks: Ranks) -> list[int]:
        trainer = resume_run(ranks, tmp_path, SETTING, ALWAYS)
        path = RunDirectory(tmp_path).checkpoint(1)
        with trainer.saver:
            trainer.step(draw_setting_batches(1)[0], ranks)
            return [(trainer.saver.save(trainer.progress) / COMPLETE).stat().st_mtime_ns for _ in range(2)] + [
                (path / COMPLETE).stat().st_mtime_ns
            ]

    for times in rank_pools.of(2).run(run):
        assert len(set(times)) == 1
    assert len(read_events(tmp_path, "checkpoint_saved")) == 1


def test_a_checkpoint_that_cannot_be_read_now_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = RunDirectory(tmp_path)
    for step in range(1, 5):
        run.checkpoint(step).mkdir(parents=True)
        (run.checkpoint(step) / COMPLETE).write_text("of some kind")

    def away(_: CheckpointDirectory) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(CheckpointDirectory, "read_manifest", away)
    remove_old_checkpoints(run, newest_step=4, num_kept=3)
    assert list_checkpoint_names(tmp_path) == ["step-00000002", "step-00000003", "step-00000004"]
    remove_old_checkpoints(run, newest_step=4, num_kept=1)
    assert list_checkpoint_names(tmp_path) == ["step-00000004"]


def test_a_run_whose_checkpoints_cannot_be_read_does_not_start_over(rank_pools: RankPools, tmp_path: Path):
    rank_pools.of(2).run(train_up_to, tmp_path, SETTING, draw_setting_batches(2), 2)
    part = next(iter(RunDirectory(tmp_path).checkpoint(2).glob("__1_*")))
    part.unlink()
    # It can neither be read nor is it missing.
    part.symlink_to(part)
    for error in rank_pools.of(2).run(find_resume_error, tmp_path, SETTING):
        assert error.startswith(f"CheckpointError: no checkpoint in {RunDirectory(tmp_path).checkpoints} can be read: ")


@pytest.mark.skipif(shutil.which("mount") is None, reason="cannot mount a small disk")
def test_a_full_disk_is_an_error_with_the_needed_and_the_free_space(rank_pools: RankPools, tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], check=False).returncode:
        pytest.skip("not permitted to mount a small disk")

    def run(ranks: Ranks) -> str:
        trainer = resume_run(ranks, tmp_path, SETTING, NEVER_SAVE)
        trainer.saver = resume_run(ranks, disk, SETTING, NEVER_SAVE).saver
        try:
            trainer.saver.save(trainer.progress)
        except CheckpointError as error:
            return str(error)
        return ""

    try:
        for error in rank_pools.of(2).run(run):
            assert "No space left on device" in error
            assert "MB are needed, but only" in error
            assert "lower run.keep_checkpoints" in error
        assert list_checkpoint_names(disk) == []
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
