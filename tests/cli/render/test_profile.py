"""The profile of training steps on the terminal."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.commands.attempt import make_result
from cli.render.profile import BETWEEN_STEPS, DESCRIPTIONS, REST, print_profile
from dlrm.record import (
    PART_DESCRIPTIONS,
    WAIT_FOR_ROWS,
    EndReason,
    ExchangeProfile,
    OperatorTime,
    Outcome,
    ProfileDirectory,
    RunDirectory,
    StepProfile,
)

SEVERAL_THREADS = OperatorTime(name="mm", seconds_per_step=0.15, calls_per_step=2.0)


def show(tmp_path: Path, **of_first: Any) -> list[str]:
    """Return what is printed of the profiles of two ranks. of_first: other fields of the profile of rank 0."""
    directory = ProfileDirectory(tmp_path)
    for rank, dense in ((0, 0.06), (1, 0.08)):
        profile = StepProfile(
            rank=rank,
            num_ranks=2,
            first_step=6,
            num_steps=3,
            seconds_per_step=0.1,
            parts={"lookup": 0.01, "dense": dense},
            operators=[OperatorTime(name="[kept]mm", seconds_per_step=0.05, calls_per_step=1234.0)],
        )
        profile.model_copy(update={} if rank else of_first).write(directory.figures(rank))
    console = Console(width=160)
    with console.capture() as capture:
        print_profile(console, directory)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_parts_come_with_their_share_and_the_slowest_rank(tmp_path: Path) -> None:
    lines = show(tmp_path)
    for line in (
        "part rank 0, ms per step share slowest rank, ms",
        f"lookup 10.00 10.0 % 10.00 {PART_DESCRIPTIONS['lookup']}",
        f"dense 60.00 60.0 % 80.00 {PART_DESCRIPTIONS['dense']}",
        f"between steps 30.00 30.0 % 30.00 {DESCRIPTIONS[BETWEEN_STEPS]}",
        "[kept]mm 50.00 50.0 % 1,234",
        f"{REST} 50.00 50.0 % -",
    ):
        assert line in lines
    text = " ".join(lines)
    assert "100.0 ms, mean of steps 6 to 8, after 5 warm-up steps" in text
    for rank in (0, 1):
        assert str(ProfileDirectory(tmp_path).trace(rank)) in text
    assert "exchange" not in text, "the ranks share memory"


@pytest.mark.parametrize(
    ("of_first", "words", "are_said"),
    [
        ({"parts": {WAIT_FOR_ROWS: 0.009}}, "waits for rows", False),
        ({"parts": {WAIT_FOR_ROWS: 0.034}}, "rank 0 waits for rows in 34 % of a step: prepared rows are read", True),
        ({"first_step": 1}, "mean of steps 1 to 3, without warm-up", True),
        ({}, "are shown", False),
        ({"num_ranks": 4}, "2 of 4 ranks are shown, the others left no profile here: machines with directories", True),
        ({"operators": [SEVERAL_THREADS]}, REST, False),
    ],
)
def test_what_is_odd_about_a_profile_is_said(
    tmp_path: Path, of_first: dict[str, Any], words: str, are_said: bool
) -> None:
    assert (words in " ".join(show(tmp_path, **of_first))) == are_said


def test_a_run_without_a_profile_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_profile(Console(width=160), ProfileDirectory(tmp_path))
    assert "the run ended before the steps" in capsys.readouterr().out


def test_the_json_line_names_the_profile_that_was_left(tmp_path: Path) -> None:
    show(tmp_path)
    run, outcome = RunDirectory(tmp_path / "run"), Outcome(state="succeeded", reason=EndReason.COMPLETED, message="")
    assert make_result(run, outcome, [], ProfileDirectory(tmp_path))["profile"] == str(tmp_path)
    for nothing in (ProfileDirectory(tmp_path / "empty"), None):
        assert make_result(run, outcome, [], nothing)["profile"] is None


def test_the_exchange_between_ranks_is_shown_with_how_long_it_is_waited_for(tmp_path: Path) -> None:
    exchanges = [
        ExchangeProfile(kind="ids", in_flight_seconds=0.002, waited_seconds=0.0005, sent_bytes=1.5e6),
        ExchangeProfile(kind="gradients", in_flight_seconds=0.04, waited_seconds=0.01, sent_bytes=2e8),
    ]
    lines = show(tmp_path, exchanges=exchanges)
    first = next(number for number, line in enumerate(lines) if line.startswith("exchange in flight,"))
    assert lines[first + 1 : first + 3] == ["gradients 40.00 10.00 200.00", "ids 2.00 0.50 1.50"]
