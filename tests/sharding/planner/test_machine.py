"""The speeds of this machine, and the file that keeps them."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from sharding.planner import machine, measure
from sharding.planner.machine import Speeds, load_speeds

SPEEDS = Speeds(one_copy=1e10, all_copies=2e10, loopback=1e9, flops=None, flops_bf16=None)


def not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


def test_speeds_are_measured_once_however_many_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    measured: list[None] = []

    def measure() -> Speeds:
        measured.append(None)
        return SPEEDS

    monkeypatch.setattr(machine, "measure_speeds", measure)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(load_speeds, [tmp_path] * 8))
    assert found == [SPEEDS] * 8
    assert len(measured) == 1
    assert load_speeds(tmp_path) == SPEEDS


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"one_copy": "fast"}}'])
def test_a_damaged_file_is_measured_again(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "measure_speeds", lambda: SPEEDS)
    (tmp_path / "machine.json").write_text(content)
    assert load_speeds(tmp_path) == SPEEDS
    assert SPEEDS.one_copy in [
        found["one_copy"] for found in json.loads((tmp_path / "machine.json").read_text()).values()
    ]


@pytest.mark.parametrize("wrong", ["0.0", "-1e9", "NaN", "Infinity"])
@pytest.mark.parametrize("figure", ["one_copy", "loopback", "flops"])
def test_an_impossible_speed_is_measured_again(
    wrong: str, figure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(machine, "measure_speeds", lambda: SPEEDS)
    assert load_speeds(tmp_path) == SPEEDS
    path = tmp_path / "machine.json"
    (key,) = kept = json.loads(path.read_text())
    kept[key][figure] = float(wrong)
    path.write_text(json.dumps(kept))
    assert load_speeds(tmp_path) == SPEEDS
    assert json.loads(path.read_text())[key][figure] == getattr(SPEEDS, figure)


def test_with_torch_and_without_it_is_measured_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_torch = replace(SPEEDS, flops=1e11)
    monkeypatch.setattr(machine, "measure_speeds", lambda: SPEEDS)
    with monkeypatch.context() as without_torch:
        without_torch.setattr(machine, "version", not_installed)
        assert load_speeds(tmp_path) == SPEEDS
    monkeypatch.setattr(machine, "measure_speeds", lambda: with_torch)
    assert load_speeds(tmp_path) == with_torch
    monkeypatch.setattr(machine, "version", not_installed)
    assert load_speeds(tmp_path) == SPEEDS


def test_where_nothing_can_be_kept_the_same_is_assumed_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "measure_speeds", lambda: SPEEDS)
    (tmp_path / "file").write_text("")
    assert load_speeds(tmp_path / "file" / "below") == machine.ASSUMED_SPEEDS


def test_a_user_without_a_home_directory_has_the_same_assumed(monkeypatch: pytest.MonkeyPatch):
    """As a container has it whose user has no name."""

    def no_entry(uid: int):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_entry)
    assert load_speeds() == machine.ASSUMED_SPEEDS


def test_a_measurement_that_fails_is_repeated_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine.sys, "executable", "/bin/false")
    assert load_speeds(tmp_path) == machine.ASSUMED_SPEEDS
    monkeypatch.setattr(machine, "measure_speeds", lambda: SPEEDS)
    assert load_speeds(tmp_path) == SPEEDS


def test_the_measurement_finds_figures_of_a_machine():
    completed = subprocess.run(
        [sys.executable, "-m", "sharding.planner.measure", "2"], capture_output=True, text=True, check=True
    )
    found = Speeds(**json.loads(completed.stdout))
    assert 1e8 < found.one_copy <= found.all_copies < 1e13
    assert 1e7 < found.loopback < 1e12
    assert found.flops is not None
    assert found.flops_bf16 is not None
    assert 1e8 < found.flops < 1e14
    assert 1e7 < found.flops_bf16 < 1e15


def test_products_in_bf16_are_measured_without_onednn_where_it_has_none(monkeypatch: pytest.MonkeyPatch):
    """As on processors without bf16 instructions, where oneDNN refuses them."""
    refused = torch.ops.mkldnn._linear_pointwise

    def refuse_bf16(x: torch.Tensor, *arguments: object) -> torch.Tensor:
        if x.dtype == torch.bfloat16:
            raise RuntimeError("could not create a primitive descriptor")
        return refused(x, *arguments)

    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", refuse_bf16)
    monkeypatch.setattr(measure, "NUM_ROWS", 16)
    num_threads = torch.get_num_threads()
    flops, flops_bf16 = measure.measure_flops()
    torch.set_num_threads(num_threads)
    assert flops is not None
    assert flops_bf16 is not None
    assert min(flops, flops_bf16) > 1e6
