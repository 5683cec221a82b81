import json
from pathlib import Path

import torch

from sharding.native import find_build_error, find_load_error, load_library

REBUILD = "pip install --no-build-isolation --no-deps -e ."


def write(directory: Path, **record: str) -> None:
    (directory / "_made.so").write_bytes(b"not a library")
    (directory / "_made.json").write_text(json.dumps(record))


def test_operators_that_were_built_here_are_loaded() -> None:
    assert load_library("tables")
    assert find_load_error("tables") is None
    assert torch.ops.dlrm_tables.pool.default._schema.name == "dlrm_tables::pool"


def test_the_error_of_missing_operators_says_how_to_build_them(tmp_path: Path) -> None:
    assert not load_library("made", tmp_path)
    reason = find_load_error("made", tmp_path)
    assert reason is not None
    assert "the native operators for made were not built: torch must be installed" in reason
    assert REBUILD in reason


def test_a_build_that_failed_says_why(tmp_path: Path) -> None:
    write(tmp_path, torch=torch.__version__, error="CompileError: command 'c++' failed")
    reason = find_load_error("made", tmp_path)
    assert reason is not None
    assert "could not be built (CompileError: command 'c++' failed)" in reason
    assert REBUILD in reason


def test_a_library_for_another_torch_is_not_loaded(tmp_path: Path) -> None:
    write(tmp_path, torch="1.0.0")
    reason = find_load_error("made", tmp_path)
    assert reason is not None
    assert f"were built for torch 1.0.0, and this is torch {torch.__version__}" in reason
    assert REBUILD in reason


def test_the_version_of_torch_that_operators_were_built_for_is_known_without_torch(tmp_path: Path) -> None:
    write(tmp_path, torch="9.0")
    assert find_build_error("made", "9.0", tmp_path) is None
    assert "this is torch 9.1" in (find_build_error("made", "9.1", tmp_path) or "")


def test_the_error_of_a_library_that_cannot_be_loaded_has_the_message_of_the_loader(tmp_path: Path) -> None:
    write(tmp_path, torch=torch.__version__)
    reason = find_load_error("made", tmp_path)
    assert reason is not None
    assert "cannot be loaded" in reason
    assert "_made.so" in reason
    assert REBUILD in reason
