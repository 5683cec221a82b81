"""Checkpoints as they lie on disk."""

from pathlib import Path

import pytest

from dlrm.record import (
    COMPLETE,
    CheckpointDirectory,
    CheckpointFaultError,
    CheckpointFile,
    CheckpointManifest,
    RunDirectory,
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
        files={"part": CheckpointFile.from_file(path / "part")},
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
