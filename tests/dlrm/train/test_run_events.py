import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import DataFacts, JobConfig, JobSpec, resolve
from dlrm.config.stages import BatchStage
from dlrm.data.packed.open import open_packed
from dlrm.data.rows import DataSchema, Feature
from dlrm.gradient_stats.noise import NoiseState, StepNoise
from dlrm.optimizers.auto_warmup import WarmupState
from dlrm.programs.plan import make_plan_line
from dlrm.record import (
    PART_DESCRIPTIONS,
    PLAN,
    WARNINGS,
    AttemptDirectory,
    BatchAdvice,
    EvaluationReport,
    EventReport,
    SpoolReader,
    parse_report,
)
from dlrm.reporting.reporter import Reporter
from dlrm.train.build import PlannedTables, plan_tables
from dlrm.train.run_events import report_advice, report_guess, report_large_batch, report_warmup
from dlrm.train.start_events import report_labels, report_length, report_methods, report_plan, report_warnings
from tests.dlrm.data.packed_files import random_rows, write_packed
from tests.dlrm.evaluated import evaluation


def record(directory: Path, report: Callable[[Reporter], object]) -> list[EventReport]:
    """Call `report`, and return the events that it has reported."""
    attempt = AttemptDirectory(directory)
    attempt.create()
    reporter = Reporter(attempt, rank=0)
    report(reporter)
    reporter.close()
    reports = [parse_report(line) for line in SpoolReader(attempt.spool_file(0, "events")).read()]
    return [report for report in reports if isinstance(report, EventReport)]


@pytest.mark.parametrize(
    ("num_votes", "schedule", "said"),
    [
        (3, {}, "the training loss was least at a learning rate of 0.02, from which it decays"),
        (2, {}, "at autowu.max_fraction 0.5 of the run the training loss had not shown a least yet, and the learning "),
        (3, {"decay": "constant"}, "was least at a learning rate of 0.02, which stays"),
    ],
)
def test_the_end_of_a_warm_up_is_said_to_be_by_the_loss_or_at_its_limit(
    tmp_path: Path, num_votes: int, schedule: dict[str, Any], said: str
) -> None:
    schedule = {"autowu": {}, **schedule}
    job = JobConfig.model_validate({"data": {"format": "synthetic"}, "dense_optimizer": {"schedule": schedule}})
    found = WarmupState(num_votes=num_votes, ended_at=1000, rate=0.02)
    progress = RunProgress(num_steps=100, step=10)
    report = partial(report_warmup, schedule=job.dense_optimizer.schedule, progress=progress, found=found)
    assert said in record(tmp_path, report)[0].message


def test_the_methods_of_a_run_are_said_with_their_choices(tmp_path: Path) -> None:
    plain = {"data": {"format": "synthetic"}}
    assert record(tmp_path / "plain", partial(report_methods, job=JobConfig.model_validate(plain))) == []
    document = plain | {
        "preconditioner": {},
        "variance_reduction": {"control": "mean"},
        "dense_optimizer": {"max_gradient_norm": 0.5, "schedule": {"autowu": {}}},
        "batch": {"global_size": 65_536, "schedule": [{"until_fraction": 0.5, "global_size": 16_384}]},
        "run": {"label_smoothing": 0.02},
    }
    job = resolve(JobSpec.model_validate(document)).job
    assert record(tmp_path / "methods", partial(report_methods, job=job))[0].details["methods"] == [
        "batch.schedule",
        "variance_reduction (control: mean)",
        "preconditioner kfac",
        "dense_optimizer.max_gradient_norm 0.5",
        "dense_optimizer.schedule.autowu",
        "run.label_smoothing 0.02",
    ]


def told(
    directory: Path,
    noise: NoiseState,
    log_loss: float = 0.4,
    best_evaluation: EvaluationReport | None = None,
    num_evaluations_since_best: int = 0,
    samples: dict[int, int] | None = None,
    **document: Any,
) -> EventReport:
    """The event at the end of a run that has measured `noise`; the constant predictor's log-loss is 0.5."""
    progress = RunProgress(
        num_steps=9,
        noise=noise,
        last_evaluation=evaluation(log_loss),
        best_evaluation=best_evaluation,
        num_evaluations_since_best=num_evaluations_since_best,
    )
    resolved = resolve(JobConfig.model_validate({"data": {"format": "synthetic"}, **document}))
    all_samples = samples or {resolved.job.batch.global_size: 10**6}
    (event,) = record(directory, lambda reporter: report_advice(reporter, resolved, progress, samples=all_samples))
    assert event.name == "batch_advice"
    return event


def measured(
    trace: float, squared_norm: float, scatter: float = 0.0, num_measured: int = 50, drift: float = 0.0
) -> NoiseState:
    """After so many measurements, whose |G|^2 lies by `scatter` above and below in turn; ten in each window."""
    noise = NoiseState()
    for number in range(num_measured):
        norm = squared_norm + (scatter if number % 2 else -scatter)
        traces, norms = {"a": 0.9 * trace, "b": 0.1 * trace}, {"a": 0.5 * norm, "b": 0.5 * norm}
        noise.add(StepNoise(traces, norms, drift=drift, window=number // 10), 4096)
    return noise


def warn_of(directory: Path, full_rows: int, noise: NoiseState, *, is_growing: bool = False) -> list[EventReport]:
    """Report a batch of `full_rows` where it is too large, and return what was reported."""
    progress = RunProgress(num_steps=9, noise=noise, last_evaluation=evaluation(0.4))
    told: list[bool] = []
    events = record(
        directory,
        lambda reporter: told.append(report_large_batch(reporter, progress, full_rows, is_growing=is_growing)),
    )
    assert told == [bool(events)]
    return events


def test_a_batch_above_four_noise_scales_is_warned_of_with_what_helps(tmp_path: Path):
    (event,) = warn_of(tmp_path / "above", 4001, measured(1000.0, 1.0))
    assert event.name == "large_batch"
    assert "far below the batch of 4,001" in event.message
    assert 'up to about 1,024, or let the batch grow, with batch.schedule = "auto"' in event.message
    assert warn_of(tmp_path / "at", 4000, measured(1000.0, 1.0)) == []
    # Bounds that lie far apart are not relied on.
    assert warn_of(tmp_path / "unknown", 4001, measured(1000.0, 1.0, scatter=50.0)) == []


def test_a_batch_that_grows_is_not_told_to_grow_but_to_begin_smaller(tmp_path: Path):
    (event,) = warn_of(tmp_path, 16_384, measured(3000.0, 1.0), is_growing=True)
    assert "far below 16,384, the batch of the run's middle step: this run may end below one" in event.message
    assert event.message.endswith("; begin with a batch of up to about 4,096")


def find_first_guess_warning(
    directory: Path, aucs: Sequence[float | None], *, standard_error: float = 0.001
) -> int | None:
    """Return the step at which a run of 1,000 steps with an evaluation after each hundredth warns first, if it does."""

    def evaluate_until_told(reporter: Reporter) -> None:
        progress = RunProgress(num_steps=1000)
        for number, auc in enumerate(aucs, start=1):
            progress.step, progress.num_samples = 100 * number, 100 * number
            changed = {"auc": auc, "auc_standard_error": standard_error}
            progress.add_evaluation(evaluation(0.4).model_copy(update=changed))
            if report_guess(reporter, progress, 1000):
                return
            # As a run that was stopped goes on.
            progress = RunProgress.model_validate_json(progress.model_dump_json())

    for event in record(directory, evaluate_until_told):
        assert event.name == "learns_nothing"
        assert f"its AUC is {aucs[event.details['step'] // 100 - 1]:.4f} ± 0.0010" in event.message
        return event.details["step"]
    return None


def test_a_model_that_guesses_twice_after_a_fifth_of_the_samples_is_warned_of(tmp_path: Path):
    assert find_first_guess_warning(tmp_path / "constant", [0.5] * 4) == 200
    assert find_first_guess_warning(tmp_path / "later", [0.5, 0.7, 0.501, 0.499]) == 400
    broken = {"learned": [0.5, 0.51, 0.5, 0.7], "undefined": [0.5, None, 0.5, None], "reversed": [0.4] * 4}
    assert {find_first_guess_warning(tmp_path / name, aucs) for name, aucs in broken.items()} == {None}
    assert find_first_guess_warning(tmp_path / "few rows", [0.5] * 4, standard_error=0.011) is None


def test_a_run_of_few_steps_is_not_told_that_it_learns_nothing(tmp_path: Path):
    guess = evaluation(0.4).model_copy(update={"auc": 0.5, "auc_standard_error": 0.001})
    progress = RunProgress(num_steps=40, step=29, num_samples=29, num_guesses_in_a_row=5, last_evaluation=guess)
    assert not record(tmp_path / "29", lambda reporter: report_guess(reporter, progress, 40))
    progress.step = 30
    assert record(tmp_path / "30", lambda reporter: report_guess(reporter, progress, 40))


def test_the_advice_names_noise_scale_bounds_largest_useful_batch_and_this_run(tmp_path: Path):
    event = told(tmp_path, measured(30_768.0, 1.0))
    assert event.message.startswith(
        "the noise scale is 30,768 samples (95 % interval 30,768 to 30,768, from 50 measurements): batches are useful "
        "up to about 32,768. This run's 16,384 takes 2.88 times the fewest steps and 1.53 times the fewest samples."
    )
    for unknown in ("dense parameters", "ignores curvature", "its own learning rate"):
        assert unknown in event.message
    advice = BatchAdvice.model_validate(event.details)
    assert (advice.batch, advice.largest_useful_batch) == (16_384, 32_768)
    assert advice.noise_scale == pytest.approx(30_768.0)
    assert [row.batch for row in advice.table] == [2048, 8192, 16_384, 32_768, 131_072, 524_288]


def test_the_advice_speaks_of_the_run_that_was_where_its_batch_grew(tmp_path: Path):
    samples = {1000: 400_000, 4000: 200_000, 32_000: 1_400_000}
    message = told(tmp_path, measured(8000.0, 1.0), samples=samples).message
    # 493.75 steps of 2,000,000 samples did what 96.1 of the fewest do, or 768,889 of the fewest samples.
    assert "This run, whose batch grew from 1,000 to 32,000, took 5.14 times the fewest steps and 2.6 times" in message


@pytest.mark.parametrize(
    ("noise", "log_loss", "document", "words"),
    [
        (NoiseState(), 0.4, {"moments": None}, "moments is null: leave it out"),
        (NoiseState(), 0.4, {}, "set a larger batch.global_size, or a smaller moments.every"),
        (measured(0.0, 1.0), 0.4, {}, "do not differ, so every batch is equally good"),
        (
            measured(50.0, 1.0, num_measured=19),
            0.4,
            {},
            "comes from only 19 measurements. Measure at least 20 times",
        ),
        (measured(50.0, 1.0), 0.5, {}, "log-loss of 0.5000 is no better than the 0.5000 of the constant"),
        (measured(1.0, 0.0, 1e-9), 0.4, {}, "A larger batch.global_size is useful, up to"),
        (measured(500.0, 1.0, 3.0), 0.4, {}, "too noisy to tell how far above. Measure more, with"),
        (measured(500.0, 1.0, 2.0), 0.4, {}, "too wide a range for advice, from 50 measurements. Measure more"),
        (measured(500.0, 1.0, drift=2.0), 0.4, {}, "as in a log that drifts, and the run saw too few windows"),
        (measured(50.0, 1.0, num_measured=5), 0.4, {"batch": {"global_size": 256}}, "a smaller moments.every"),
    ],
    ids=[
        "not measured",
        "nothing to compare",
        "no noise",
        "too seldom",
        "wrecked",
        "noise alone",
        "noise alone, in a large batch",
        "too wide",
        "drift",
        "seldom",
    ],
)
def test_where_there_is_no_advice_it_says_why_and_what_to_do(
    tmp_path: Path, noise: NoiseState, log_loss: float, document: dict[str, Any], words: str
):
    event = told(tmp_path, noise, log_loss, **document)
    assert event.message.startswith("no advice on the batch: ")
    assert words in event.message
    assert BatchAdvice.model_validate(event.details).table == []


def test_a_larger_batch_is_advised_up_to_the_noise_scales_lower_bound(tmp_path: Path):
    noise = measured(500.0, 0.01, 3.0)
    message = told(tmp_path / "small", noise, batch={"global_size": 16}).message
    above = re.search(r"the noise scale is above ([\d.,]+) samples", message)
    useful = re.search(r"is useful, up to ([\d,]+) at least", message)
    assert above is not None, message
    assert useful is not None, message
    bound, batch = float(above[1].replace(",", "")), int(useful[1].replace(",", ""))
    assert 16 < batch <= bound < 2 * batch
    # The power of two below the bound is this batch itself: none above it is known to be useful.
    assert "A larger batch" not in told(tmp_path / "same", noise, batch={"global_size": batch}).message


@pytest.mark.parametrize("is_known", [True, False])
def test_where_batch_and_epochs_were_left_open_nothing_is_said_of_missing_advice(tmp_path: Path, is_known: bool):
    noise = measured(30_768.0, 1.0, num_measured=50 if is_known else 19)
    progress = RunProgress(num_steps=9, noise=noise, last_evaluation=evaluation(0.4))
    document = JobSpec.model_validate({"data": {"format": "synthetic"}})
    resolved = resolve(document, facts=DataFacts(num_train_rows=10**6))
    samples = {resolved.job.batch.global_size: 10**6}
    events = record(tmp_path, lambda reporter: report_advice(reporter, resolved, progress, samples=samples))
    assert [event.message.startswith("the noise scale is 30,768 samples") for event in events] == [True] * is_known


def test_a_run_that_got_worse_is_not_advised_to_train_longer_for_more_measurements(tmp_path: Path):
    worse = {"best_evaluation": evaluation(0.39), "num_evaluations_since_best": 2}
    event = told(tmp_path / "worse", measured(50.0, 1.0, num_measured=5), **worse)
    assert "a smaller batch.global_size" in event.message
    assert "run.epochs" not in event.message
    event = told(tmp_path / "wrecked", measured(50.0, 1.0), log_loss=0.5, **worse)
    assert event.message.endswith("the one that is kept; set fewer run.epochs for advice about it")
    event = told(tmp_path / "last", measured(50.0, 1.0), log_loss=0.5, run={"keep_model": "last"}, **worse)
    assert event.message.endswith('set run.keep_model = "best", which keeps that one, or fewer run.epochs')


def report_plan_of(document: dict[str, Any], directory: Path) -> tuple[EventReport, PlannedTables]:
    job = JobConfig.model_validate({"data": {"format": "synthetic"}, **document})
    planned = plan_tables(resolve(job), DataSchema(1, (Feature("user.id", 50), Feature("type", 60))))
    return record(directory, lambda reporter: report_plan(reporter, planned.report, planned.resolved))[0], planned


def test_a_chunk_that_the_plan_has_decided_is_told_with_its_reason(tmp_path: Path):
    gpu = {"resources": {"workers_per_node": 1, "gpus_per_worker": 1}, "sharding": {"topology": {"gpu_memory": "80GB"}}}
    report, _ = report_plan_of({**gpu, "batch": {"global_size": 131_072}}, tmp_path)
    assert report.details["chunk_size"] == 131_072
    assert report.message.endswith("; chunks of 131,072 samples, the whole share, for which the plan has room on a GPU")


def test_the_plan_is_told_by_the_names_of_columns_with_all_that_ranks_hold(tmp_path: Path):
    """What nobody asked the dashboard to know: how models name a table whose column has a dot in its name."""
    report, planned = report_plan_of({"resources": {"memory": "4GiB"}}, tmp_path)
    assert report.name == PLAN
    details = report.details
    assert [(name, table["num_rows"]) for name, table in details["tables"].items()] == [("user.id", 50), ("type", 60)]
    assert (details["memory_bytes"], details["ranks_per_memory"]) == (4 * 2**30, 2)
    held = (details[f"{kind}_bytes"] for kind in ("weight", "optimizer", "buffer"))
    assert [sum(of_rank) for of_rank in zip(*held, strict=True)] == [r.total_bytes for r in planned.report.ranks]
    assert set(details["step_seconds"]) <= set(PART_DESCRIPTIONS)
    assert sum(details["step_seconds"].values()) == pytest.approx(planned.report.step.seconds)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize(
    ("other_labels", "weighted", "said"),
    [
        (False, False, "every training row has label {}"),
        (True, True, "every training row with a weight above 0 has label {}"),
    ],
    ids=["all rows", "all rows that count"],
)
def test_rows_of_one_label_are_told_from_rows_whose_other_labels_all_have_weight_0(
    tmp_path: Path, label: int, other_labels: bool, weighted: bool, said: str
):
    rows = random_rows(40, weighted=weighted)
    labels = rows.labels if other_labels else np.full_like(rows.labels, label)
    weights = None if rows.weights is None else np.where(labels == label, rows.weights, 0)
    assert {0, 1} - set(labels) == (set() if other_labels else {1 - label})
    write_packed(tmp_path, replace(rows, labels=labels, weights=weights), random_rows(9, weighted=weighted))
    dataset = open_packed(tmp_path)
    job = JobConfig.model_validate({"data": {"format": "synthetic"}, "resources": {"memory": "4GiB"}})
    events = record(tmp_path / "attempt", lambda reporter: report_labels(reporter, dataset, job))
    told = {event.name: event.message for event in events}
    assert told["one_label"] == f"{said.format(label)}: nothing can be learned"


def reports_of_length(directory: Path, num_rows: int, num_steps: int, epochs: int) -> list[Any]:
    """What a run says of its length before its first step; B is 1,000."""
    attempt = AttemptDirectory(directory)
    attempt.create()
    reporter = Reporter(attempt, rank=0)
    job = JobConfig.model_validate(
        {"data": {"format": "synthetic"}, "batch": {"global_size": 1000}, "run": {"epochs": epochs}}
    )
    end_row = num_rows * epochs
    full_rows = min(1000, num_rows)
    assert num_steps == -(-end_row // full_rows)
    stage = BatchStage(1000, full_rows, moments_every=1, start_step=0, start_row=0, end_row=end_row)
    report_length(reporter, job, RunProgress(num_steps=num_steps), [stage], num_rows)
    reporter.close()
    return [
        parse_report(line)
        for stream in ("metrics", "events")
        for line in SpoolReader(attempt.spool_file(0, stream)).read()
    ]


def test_the_short_batch_at_the_end_of_a_run_is_told_where_there_is_one(tmp_path: Path):
    (whole,) = reports_of_length(tmp_path / "whole", 20_500, 41, epochs=2)
    assert whole.message == "41 steps of 1,000 samples"
    (with_rest,) = reports_of_length(tmp_path / "rest", 20_501, 42, epochs=2)
    assert with_rest.message == "42 steps of 1,000 samples, the last one of 2"


def test_an_epoch_shorter_than_a_batch_is_told_with_a_batch_that_would_not_be(tmp_path: Path):
    progress, short = reports_of_length(tmp_path, 700, 40, epochs=40)
    assert progress.message == "40 steps of 700 samples"
    assert short.name == "short_epoch"
    assert short.name in WARNINGS
    assert "700 training rows, fewer than batch.global_size 1,000" in short.message


def test_a_capped_warm_up_is_told_to_whoever_started_the_run(tmp_path: Path):
    schedule = {"scaling": "legw", "warmup_fraction": 0.2}
    document = {"data": {"format": "synthetic"}, "dense_optimizer": {"schedule": schedule}}
    job = resolve(JobConfig.model_validate(document))
    (event,) = record(tmp_path, lambda reporter: report_warnings(reporter, job))
    assert event.name == "warmup_capped"
    assert event.name in WARNINGS
    assert "dense_optimizer.schedule: scaling legw makes the warm-up 8 times as long, 1.6 of the run" in event.message
    assert "a warmup_fraction of up to 0.0625" in event.message


@pytest.mark.parametrize(
    ("flags", "precision", "gpus_per_worker", "is_told"),
    [
        ("flags\t\t: fpu avx2 fma", "bf16", 0, True),
        ("flags\t\t: fpu avx512f avx512_bf16", "bf16", 0, False),
        ("flags\t\t: fpu amx_bf16 amx_tile", "bf16", 0, False),
        ("Features\t: fp asimd bf16", "bf16", 0, False),
        ("Features\t: fp asimd", "bf16", 0, True),
        ("vendor_id\t: unknown", "bf16", 0, False),
        ("flags\t\t: fpu avx2", "fp32", 0, False),
        ("flags\t\t: fpu avx2", "bf16", 1, False),
    ],
)
def test_bf16_is_warned_of_by_plan_and_run_where_the_processor_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, precision: str, gpus_per_worker: int, *, is_told: bool
):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    monkeypatch.setattr("hostinfo.limits.CPUINFO", tmp_path / "cpuinfo")
    resources = {"workers_per_node": 1, "gpus_per_worker": gpus_per_worker}
    synthetic = {"format": "synthetic", "synthetic": {"num_rows": 10_000}}
    job = resolve(JobConfig.model_validate({"data": synthetic, "precision": precision, "resources": resources}))
    events = record(tmp_path, lambda reporter: report_warnings(reporter, job))
    assert [event.name for event in events] == ["slow_precision"] * is_told
    told = [
        warning for warning in json.loads(make_plan_line(job, None))["warnings"] if warning.startswith("precision:")
    ]
    assert len(told) == is_told
    # Nobody knows the machine that a launcher finds.
    elsewhere = json.loads(make_plan_line(job, None, place="unseen"))["warnings"]
    assert not [warning for warning in elsewhere if warning.startswith("precision:")]
