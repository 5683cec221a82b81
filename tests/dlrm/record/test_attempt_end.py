"""Short form of the end of an attempt."""

import pytest

from dlrm.record import AttemptEnd, CheckpointReport, EndReason, Outcome, RankEnd


def make_end(message: str, num_metrics: int = 0, num_ranks: int = 0) -> AttemptEnd:
    metrics = {f"metric_{number}": float(number) for number in range(num_metrics)}
    outcome = Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message, rank=1, metrics=metrics)
    ends = [RankEnd(rank=rank, exit_code=1, message="ended with exit code 1") for rank in range(num_ranks)]
    return AttemptEnd(outcome=outcome, rank_ends=ends)


def test_what_fits_is_left_as_it_is():
    end = make_end("short", num_metrics=3, num_ranks=2)
    assert AttemptEnd.model_validate_json(end.format_within(4000)) == end


def test_metrics_are_left_out_first_and_then_the_ends_of_ranks():
    without_metrics = AttemptEnd.model_validate_json(make_end("short", 1000, num_ranks=2).format_within(4000))
    assert without_metrics == make_end("short", num_ranks=2)
    assert AttemptEnd.model_validate_json(make_end("short", 1000, 1000).format_within(4000)) == make_end("short")


@pytest.mark.parametrize("character", ["x", "\u20ac", "\0", "\U0001f600"])
def test_a_long_message_is_cut_to_what_fits(character: str):
    text = make_end("begins " + character * 5000).format_within(4000)
    assert len(text.encode()) <= 4000
    outcome = AttemptEnd.model_validate_json(text).outcome
    assert outcome.message.startswith(f"begins {character * 100}")
    assert outcome.message.endswith(" …")
    assert (outcome.reason, outcome.rank) == (EndReason.WORKER_CRASHED, 1)


def make_checkpoint(path: str) -> CheckpointReport:
    return CheckpointReport(
        step=2**62, num_samples=2**62, num_steps=2**62, num_bytes=2**62, world_size=2**30, time=1.8e9 + 1 / 3, path=path
    )


def test_the_places_of_model_and_checkpoint_stay_where_all_else_is_cut():
    model, checkpoint = "/runs/" + "m" * 900, make_checkpoint("/runs/" + "c" * 900)
    for end in (make_end("short", 1000, 1000), make_end("x" * 50_000)):
        full = end.model_copy(update={"model_path": model, "checkpoint": checkpoint})
        text = full.format_within(4000)
        assert len(text.encode()) <= 4000
        short = AttemptEnd.model_validate_json(text)
        assert (short.model_path, short.checkpoint) == (model, checkpoint)
        assert short.outcome.message[:100] == end.outcome.message[:100]


@pytest.mark.parametrize("character", ["x", "\u20ac", '"', "\U0001f600"])
def test_a_place_too_long_for_the_message_is_left_out(character: str):
    end = make_end("short", num_metrics=3, num_ranks=2)
    path = "/" + character * 4000
    full = end.model_copy(update={"model_path": path, "checkpoint": make_checkpoint(path)})
    assert AttemptEnd.model_validate_json(full.format_within(10**6)) == full
    assert AttemptEnd.model_validate_json(full.format_within(4000)) == end


def test_ends_of_other_versions_are_read():
    outcome = make_end("short").outcome
    assert AttemptEnd.model_validate_json(f'{{"outcome": {outcome.model_dump_json()}}}') == AttemptEnd(outcome=outcome)
    later = f'{{"outcome": {outcome.model_dump_json()}, "model_path": "/m", "told_later": 1}}'
    assert AttemptEnd.model_validate_json(later) == AttemptEnd(outcome=outcome, model_path="/m")
