"""The measurements of training steps on tiny shapes: that they run, and what they print."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TINY = ["--batch", "64", "--tables", "3", "--rows", "50", "--dim", "8"]


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"benchmarks.{module}", *TINY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_step_is_measured_in_one_line_of_json():
    ran = run("step", "--seconds", "0", "--json", "--ids", "zipf", "--variance-reduction", "default")
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured["samples_per_second"] > 0
    parts = measured["step_seconds"]
    assert set(parts) == {"lookup", "dense", "give_back", "agree", "table_update", "wait_for_sum", "optimizer"}
    assert all(seconds > 0 for seconds in parts.values())
    # Python and torch alone take some 200 MB.
    assert 100e6 < measured["peak_memory_bytes"] < 2e9


def test_every_kind_of_variance_reduction_is_compared_with_none():
    ran = run("variance_reduction", "--pairs", "2")
    assert ran.returncode == 0, ran.stderr
    rows = [line.split("|")[1:-1] for line in ran.stdout.splitlines() if line.startswith("|")][2:]
    assert [row[0].strip() for row in rows] == ["off", "default", "exact", "groups"]
    assert float(rows[0][2]) == 1.0
    assert all(float(least) <= float(median) <= float(largest) for _, _, median, least, largest, *_ in rows)


@pytest.mark.parametrize("module", ["step", "variance_reduction"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--ranks", "3", "64 is not divisible by 3 ranks"),
        ("--ranks", "0", "--ranks: 0 is not a positive integer"),
        ("--chunk", "-1", "--chunk: -1 is not a positive integer"),
        ("--precision", "tf32", "--precision tf32 needs --device cuda"),
    ],
)
def test_an_invalid_shape_is_an_error_in_words(module: str, option: str, value: str, message: str):
    ran = run(module, option, value)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("module", ["step", "variance_reduction"])
def test_gpus_that_are_missing_are_an_error_in_words(module: str):
    ran = run(module, "--device", "cuda", "--ranks", "8")
    assert ran.returncode == 2
    assert "--device cuda needs 8 GPUs, one for each rank, and torch" in ran.stderr
    assert "Traceback" not in ran.stderr
