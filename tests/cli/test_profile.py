"""What `dlrm train --profile` shows."""

from collections.abc import Callable
from pathlib import Path

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


@pytest.fixture
def directory(tmp_path: Path) -> ProfileDirectory:
    directory = ProfileDirectory(tmp_path)
    for rank, dense in ((0, 0.06), (1, 0.08)):
        StepProfile(
            rank=rank,
            num_ranks=2,
            first_step=6,
            num_steps=3,
            seconds_per_step=0.1,
            parts={"lookup": 0.01, "dense": dense},
            operators=[OperatorTime(name="[kept]mm", seconds_per_step=0.05, calls_per_step=1234.0)],
        ).write(directory.figures(rank))
    return directory


def shown(directory: ProfileDirectory, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    print_profile(Console(width=160), directory)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_parts_come_with_their_share_and_the_slowest_rank(
    directory: ProfileDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(directory, capsys)
    assert ["lookup", "10.00", "10.0", "%", "10.00", *PART_DESCRIPTIONS["lookup"].split()] in lines
    assert ["dense", "60.00", "60.0", "%", "80.00", *PART_DESCRIPTIONS["dense"].split()] in lines
    assert ["between", "steps", "30.00", "30.0", "%", "30.00", *DESCRIPTIONS[BETWEEN_STEPS].split()] in lines
    assert ["[kept]mm", "50.00", "50.0", "%", "1,234"] in lines
    assert [*REST.split(), "50.00", "50.0", "%", "-"] in lines
    assert ["part", "rank", "0,", "ms", "per", "step", "share", "slowest", "rank,", "ms"] in lines
    text = " ".join(word for line in lines for word in line)
    assert "100.0 ms, mean of steps 6 to 8, after 5 warm-up steps" in text
    assert str(directory.trace(0)) in text
    assert str(directory.trace(1)) in text


@pytest.mark.parametrize(("waited", "is_said"), [(0.009, False), (0.034, True)])
def test_a_rank_that_waits_for_rows_is_named_with_a_remedy(
    directory: ProfileDirectory, capsys: pytest.CaptureFixture[str], waited: float, is_said: bool
) -> None:
    last = directory.read()[1]
    last.model_copy(update={"parts": {WAIT_FOR_ROWS: waited, **last.parts}}).write(directory.figures(1))
    text = " ".join(word for line in shown(directory, capsys) for word in line)
    assert ("rank 1 waits for rows in 34 % of a step: prepared rows are read faster" in text) == is_said


def test_steps_without_others_before_them_say_so(
    directory: ProfileDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    for profile in directory.read():
        profile.model_copy(update={"first_step": 1}).write(directory.figures(profile.rank))
    text = " ".join(word for line in shown(directory, capsys) for word in line)
    assert "mean of steps 1 to 3, without warm-up" in text


def test_ranks_of_machines_with_directories_of_their_own_are_said_to_be_elsewhere(
    tmp_path: Path, directory: ProfileDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(word for line in shown(directory, capsys) for word in line)
    assert "are shown" not in text
    for profile in directory.read():
        profile.model_copy(update={"num_ranks": 4}).write(directory.figures(profile.rank))
    text = " ".join(word for line in shown(directory, capsys) for word in line)
    place = f"{tmp_path.parent.name}/{tmp_path.name}"
    assert "2 of 4 ranks are shown, the others left no profile here: machines with directories of their own" in text
    assert f"keep the profiles of theirs in {place} there" in text


def test_operators_at_the_same_time_leave_no_rest(
    directory: ProfileDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (profile, _) = directory.read()
    several = [OperatorTime(name="mm", seconds_per_step=0.15, calls_per_step=2.0)]
    profile.model_copy(update={"operators": several}).write(directory.figures(0))
    assert REST.split()[0:2] not in [line[:2] for line in shown(directory, capsys)]


def test_a_run_without_a_profile_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the run ended before the steps" in " ".join(shown(ProfileDirectory(tmp_path), capsys)[0])


def test_the_json_line_names_the_profile_that_was_left(directory: ProfileDirectory, tmp_path: Path) -> None:
    run, outcome = RunDirectory(tmp_path / "run"), Outcome(state="succeeded", reason=EndReason.COMPLETED, message="")
    assert make_result(run, outcome, [], directory)["profile"] == str(directory.path)
    for nothing in (ProfileDirectory(tmp_path / "empty"), None):
        assert make_result(run, outcome, [], nothing)["profile"] is None


def test_the_help_teaches_where_profiles_lie(dlrm: Callable[..., object]) -> None:
    text = " ".join(str(dlrm("train", "--help").out).split())  # pyright: ignore[reportAttributeAccessIssue]
    assert "--profile" in text
    assert "attempt-N/profile" in text
    assert "ui.perfetto.dev" in text


def test_the_exchange_between_ranks_is_shown_with_how_long_it_is_waited_for(
    directory: ProfileDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not any("exchange" in line for line in shown(directory, capsys)), "the ranks share memory"
    profile = directory.read()[0]
    exchanges = [
        ExchangeProfile(kind="ids", in_flight_seconds=0.002, waited_seconds=0.0005, sent_bytes=1.5e6),
        ExchangeProfile(kind="gradients", in_flight_seconds=0.04, waited_seconds=0.01, sent_bytes=2e8),
    ]
    profile.model_copy(update={"exchanges": exchanges}).write(directory.figures(0))
    lines = shown(directory, capsys)
    first = next(number for number, line in enumerate(lines) if line[:1] == ["exchange"] and "flight," in line)
    assert lines[first + 1] == ["gradients", "40.00", "10.00", "200.00"]
    assert lines[first + 2] == ["ids", "2.00", "0.50", "1.50"]
