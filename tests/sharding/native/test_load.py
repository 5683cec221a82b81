import json
from pathlib import Path

import torch

from sharding.native import load_library, why_not, why_not_built

MEND = "pip install --no-build-isolation --no-deps -e ."


def write(directory: Path, **record: str) -> None:
    (directory / "_made.so").write_bytes(b"not a library")
    (directory / "_made.json").write_text(json.dumps(record))


def test_what_was_built_here_is_loaded() -> None:
    assert load_library("tables")
    assert why_not("tables") is None
    assert torch.ops.dlrm_tables.pool.default._schema.name == "dlrm_tables::pool"


def test_what_was_not_built_says_how_to(tmp_path: Path) -> None:
    assert not load_library("made", tmp_path)
    reason = why_not("made", tmp_path)
    assert reason is not None
    assert "the operators of made were not built: torch must be there" in reason
    assert MEND in reason


def test_a_build_that_failed_says_why(tmp_path: Path) -> None:
    write(tmp_path, torch=torch.__version__, error="CompileError: command 'c++' failed")
    reason = why_not("made", tmp_path)
    assert reason is not None
    assert "could not be built (CompileError: command 'c++' failed)" in reason
    assert MEND in reason


def test_a_library_for_another_torch_is_not_loaded(tmp_path: Path) -> None:
    write(tmp_path, torch="1.0.0")
    reason = why_not("made", tmp_path)
    assert reason is not None
    assert f"were built for torch 1.0.0, and this is torch {torch.__version__}" in reason
    assert MEND in reason


def test_what_was_built_for_a_version_of_torch_is_known_without_loading_it(tmp_path: Path) -> None:
    write(tmp_path, torch="9.0")
    assert why_not_built("made", "9.0", tmp_path) is None
    assert "this is torch 9.1" in (why_not_built("made", "9.1", tmp_path) or "")


def test_a_library_that_cannot_be_loaded_says_what_the_loader_said(tmp_path: Path) -> None:
    write(tmp_path, torch=torch.__version__)
    reason = why_not("made", tmp_path)
    assert reason is not None
    assert "cannot be loaded" in reason
    assert "_made.so" in reason
    assert MEND in reason
