"""Checkpoints as they lie on disk."""

from pathlib import Path

import pytest

from dlrm.record import (
    COMPLETE,
    CheckpointDirectory,
    CheckpointFaultError,
    CheckpointManifest,
    FileRecord,
    RunDirectory,
    find_checkpoint,
    find_newest_checkpoint,
    list_checkpoints,
)


def write(path: Path, step: int) -> CheckpointDirectory:
    path.mkdir(parents=True)
    (path / "part").write_bytes(b"weights")
    manifest = CheckpointManifest(
        step=step,
        num_steps=10,
        num_samples=step * 4,
        time=1.5,
        world_size=2,
        identity={"run.seed": 0},
        data_checksum=None,
        files={"part": FileRecord.from_file(path / "part")},
    )
    manifest.write(path)
    return CheckpointDirectory(path, step)


def test_checkpoints_are_found_newest_first_and_nothing_else(tmp_path: Path):
    run = RunDirectory(tmp_path)
    for step in (3, 20, 100_000_000):
        write(run.checkpoint(step), step)
    (run.checkpoints / "step-12").mkdir()
    (run.checkpoints / "notes").write_text("mine")
    run.checkpoint(50).mkdir()
    assert [checkpoint.step for checkpoint in list_checkpoints(run.checkpoints)] == [100_000_000, 50, 20, 3]
    assert list_checkpoints(tmp_path / "nowhere") == []


def test_the_newest_complete_one_is_found_behind_unfinished_ones(tmp_path: Path):
    run = RunDirectory(tmp_path)
    assert find_newest_checkpoint(run.checkpoints) is None
    write(run.checkpoint(3), 3)
    run.checkpoint(4).mkdir()
    found = find_newest_checkpoint(run.checkpoints)
    assert found is not None
    assert (found.step, found.read_manifest().num_bytes) == (3, len(b"weights"))


def test_a_manifest_damaged_in_any_byte_does_not_count(tmp_path: Path):
    checkpoint = write(tmp_path / "step-00000003", 3)
    good = (checkpoint.path / COMPLETE).read_bytes()
    for place in range(len(good)):
        damaged = bytearray(good)
        damaged[place] ^= 1
        (checkpoint.path / COMPLETE).write_bytes(damaged)
        with pytest.raises(CheckpointFaultError, match="damaged, or was written by another program"):
            checkpoint.read_manifest()
        (checkpoint.path / COMPLETE).write_bytes(good[:place])
        with pytest.raises(CheckpointFaultError, match="damaged, or was written by another program"):
            checkpoint.read_manifest()


def test_a_checkpoint_under_another_name_does_not_count(tmp_path: Path):
    checkpoint = write(tmp_path / "step-00000003", 3)
    moved = CheckpointDirectory(checkpoint.path.rename(tmp_path / "step-00000004"), 4)
    with pytest.raises(CheckpointFaultError, match="COMPLETE belongs to step 3"):
        moved.read_manifest()


def test_a_checkpoint_is_found_by_any_of_its_names(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    for step in (3, 20):
        write(run.checkpoint(step), step)
    run.checkpoint(30).mkdir()
    for name in ("newest", "step-20", "step-00000020", str(run.checkpoint(20))):
        assert find_checkpoint(run.checkpoints, name) == CheckpointDirectory(run.checkpoint(20), 20)
    assert find_checkpoint(run.checkpoints, "step-3").step == 3
    for name in ("step-4", "20", "last", ""):
        with pytest.raises(CheckpointFaultError, match=r"is no checkpoint in .*valid: newest, step-00000030"):
            find_checkpoint(run.checkpoints, name)
    for path in (run.path, run.checkpoint(9)):
        with pytest.raises(CheckpointFaultError, match="is not the directory of a checkpoint"):
            find_checkpoint(run.checkpoints, str(path))
    with pytest.raises(CheckpointFaultError, match="has no complete checkpoint"):
        find_checkpoint(tmp_path / "nowhere", "newest")
