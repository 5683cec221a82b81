from pathlib import Path
from typing import Any

import pytest

from dlrm.config import parse_job
from dlrm.noise import NoiseState
from dlrm.progress import Progress
from dlrm.record import AttemptDirectory, BatchAdvice, EventReport, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.tell import tell_advice


def told(directory: Path, noise: NoiseState, **document: Any) -> EventReport:
    """The event at the end of a run that has measured `noise`."""
    attempt = AttemptDirectory(directory)
    attempt.create()
    reporter = Reporter(attempt, rank=0)
    tell_advice(reporter, parse_job({"data": {"format": "synthetic"}, **document}), Progress(num_steps=9, noise=noise))
    reporter.close()
    (line,) = SpoolReader(attempt.spool_file(0, "events")).read()
    report = parse_report(line)
    assert isinstance(report, EventReport)
    assert report.name == "batch_advice"
    return report


def test_the_advice_names_the_noise_scale_the_largest_useful_batch_and_this_runs_place(tmp_path: Path):
    event = told(
        tmp_path, NoiseState(num_measured=30, traces={"a": 30_000.0, "b": 768.0}, squared_norms={"a": 0.5, "b": 0.5})
    )
    assert event.message.startswith(
        "the noise scale is 30,768 samples: batches are useful up to about 32,768. This run's 16,384 takes "
        "2.88 times the fewest steps and 1.53 times the fewest samples."
    )
    for unknown in ("dense parameters", "without curvature", "its own learning rate"):
        assert unknown in event.message
    advice = BatchAdvice.model_validate(event.details)
    assert (advice.batch, advice.noise_scale, advice.largest_useful_batch) == (16_384, 30_768.0, 32_768)
    assert [row.batch for row in advice.table] == [2048, 8192, 16_384, 32_768, 131_072, 524_288]


@pytest.mark.parametrize(
    ("noise", "document", "words"),
    [
        (NoiseState(), {"moments": None}, "moments is null: leave it out"),
        (NoiseState(), {}, "take a larger batch.global_size, or a smaller moments.every"),
        (NoiseState(traces={"a": 0.0}, squared_norms={"a": 1.0}), {}, "do not differ, so that any batch is as good"),
        (
            NoiseState(num_measured=29, traces={"a": 50.0}, squared_norms={"a": 1.0}),
            {},
            "the noise scale, 50 samples, comes from 29 step(s) alone",
        ),
        (NoiseState(traces={"a": 1.0}, squared_norms={"a": -1e-9}), {}, "far above this run's batch of 16,384"),
    ],
    ids=["not measured", "nothing to compare", "no noise", "too seldom", "noise alone"],
)
def test_where_there_is_no_noise_scale_it_says_why_and_what_to_do(
    tmp_path: Path, noise: NoiseState, document: dict[str, Any], words: str
):
    event = told(tmp_path, noise, **document)
    assert event.message.startswith("no advice on the batch: ")
    assert words in event.message
    assert BatchAdvice.model_validate(event.details).table == []
