"""Advice on jobs that have stopped, by the reason."""

from service.reasons import ADVICE, Reason

SUCCESSES = {Reason.COMPLETED, Reason.TARGET_REACHED, Reason.NO_IMPROVEMENT}


def test_every_reason_that_ends_or_stops_a_job_has_advice() -> None:
    reasons = list(Reason)
    ends = set(reasons[reasons.index(Reason.COMPLETED) :]) - SUCCESSES
    assert ends | {Reason.UNSCHEDULABLE, Reason.QUOTA_EXCEEDED, Reason.HELD, Reason.UNSEEN} == set(ADVICE)
    assert all(sentence.endswith(".") for sentence in ADVICE.values())
