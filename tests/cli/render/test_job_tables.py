"""Tables of jobs, results and advice."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from cli.local.progress import describe_progress
from cli.render.job_tables import make_events_table, make_job_table, make_jobs_table, make_result_table
from cli.render.quality import print_advice, print_comparison
from dlrm.gradient_stats.batch_advice import advise
from dlrm.gradient_stats.noise import NoiseInterval
from dlrm.record import EventReport, LossForecast, YardstickResult
from service.client import Attempt, BatchStage, Event, Job, JobDetails, Progress, QueuePlace

TIME = datetime(2026, 1, 1, tzinfo=UTC)
STAGES = [
    BatchStage(global_size=1024, until_fraction=0.25),
    BatchStage(global_size=4096, until_fraction=0.5, is_current=True),
    BatchStage(global_size=16_384),
]
MANY_STAGES = [
    *(BatchStage(global_size=1000 + number, until_fraction=number / 10) for number in range(1, 10)),
    BatchStage(global_size=1010, is_current=True),
]


def printed(table: object, width: int = 100) -> list[str]:
    """Return the lines of a table, with one blank between words."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def show_job(attempts: list[Attempt] | None = None, **fields: Any) -> str:
    job = JobDetails(**{"id": "job_1", "name": "job", "state": "RUNNING", "created_at": TIME, "world_size": 1} | fields)
    return " ".join(printed(make_job_table(job, attempts or [])))


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (
            {"auc": None, "log_loss": 0.2, "normalized_entropy": None, "calibration": 1.3},
            [
                "AUC undefined: all rows have the same label",
                "log-loss 0.2000",
                "normalized entropy undefined: all rows have the same label",
                "calibration 1.3000",
            ],
        ),
        ({"auc": None, "log_loss": None, "message": "", "num_steps": 7}, ["steps 7"]),
        ({"message": "the run ended early, after step 60 of 200"}, ["end the run ended early, after step 60 of 200"]),
        ({"auc": 0.78124, "auc_standard_error": 0.00213}, ["AUC 0.7812 ± 0.0021 (standard error)"]),
        (
            {"train_auc": 0.79456, "train_log_loss": 0.4321},
            ["AUC on training rows 0.7946", "log-loss on training rows 0.4321"],
        ),
        (
            {"noise_scale": 31_204.4, "largest_useful_batch": 32_768.0},
            ["noise scale 31,204", "largest useful batch 32,768"],
        ),
        ({"model": "runs/a/model"}, ["model runs/a/model", "report of the model runs/a/model/MODEL_CARD.md"]),
    ],
)
def test_a_result_has_a_line_for_each_value_that_is_known(result: dict[str, Any], lines: list[str]) -> None:
    assert printed(make_result_table(result)) == lines


def test_a_model_is_shown_between_the_simple_models_that_were_measured_within_80_columns() -> None:
    console = Console(width=80)
    metrics = {
        "auc": 0.78124,
        "auc_standard_error": 0.00213,
        "log_loss": 0.44,
        "calibration": 0.98,
        "constant_log_loss": 0.55,
        "num_samples": 1000.0,
        "samples_per_second": 50.0,
    }
    with console.capture() as capture:
        print_comparison(console, metrics)
    assert capture.get() == "", "nothing was measured beside it"
    trees = YardstickResult(
        name="hist_gradient_boosting",
        auc=0.79,
        auc_standard_error=0.0019,
        log_loss=0.43,
        calibration=1.002,
        seconds=12.3,
        num_train_rows=300_000,
        num_rows=32_000,
    )
    with console.capture() as capture:
        print_comparison(console, {**metrics, **trees.to_metrics()})
    assert [" ".join(line.split()) for line in capture.get().splitlines()[-3:]] == [
        "this model 0.7812 ± 0.0021 0.4400 0.980 20.0",
        "scikit-learn's trees 0.7900 ± 0.0019 0.4300 1.002 12.3 300,000",
        "constant predictor 0.5500",
    ]


def test_a_job_ran_for_as_long_as_its_attempts_together() -> None:
    attempts = [
        Attempt(
            id=f"att_{number}",
            number=number,
            state="FAILED",
            started_at=TIME + timedelta(seconds=start),
            finished_at=TIME + timedelta(seconds=start + lasted),
        )
        for number, (start, lasted) in enumerate([(0, 57), (120, 16), (200, 97)], start=1)
    ]
    assert "ran for 2 min 50 s" in show_job(attempts)
    assert "ran for" not in show_job()


def test_jobs_of_several_owners_are_shown_with_their_owners() -> None:
    jobs = [
        Job(id=f"job_{owner[:3]}", name="job", owner=owner, state="QUEUED", created_at=TIME, world_size=1)
        for owner in ("alice", "bob\x1b")
    ]
    lines = printed(make_jobs_table(jobs))
    assert lines[0].startswith("id owner name state")
    assert [line.split()[:3] for line in lines[1:]] == [["job_ali", "alice", "job"], ["job_bob", "bob\\x1b", "job"]]
    assert "owner" not in printed(make_jobs_table(jobs[:1]))[0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"owner": "alice", "created_by": "laptop"}, "owner alice (key laptop)"),
        (
            {"batch_stages": STAGES},
            "batch 4,096 samples now; stages: 1,024 until 25 % of the samples, then 4,096 until 50 % of the samples, "
            "then 16,384",
        ),
        ({"batch_stages": [STAGES[0], STAGES[2]]}, "batch stages: 1,024 until 25 %"),
        (
            {"batch_stages": MANY_STAGES},
            "batch 1,010 samples now; stages: 1,001 until 10 % of the samples, then 7 more sizes, then 1,009 until 90 "
            "% of the samples, then 1,010",
        ),
        (
            {"forecast": LossForecast(message="log-loss 0.4571 (0.4550 to 0.4603) at the end")},
            "forecast log-loss 0.4571",
        ),
        ({"queue": QueuePlace(position=1, waits_for="", expected_start_at=None)}, "in the queue number 1 created"),
    ],
)
def test_a_job_is_shown_with_what_is_known_of_it(fields: dict[str, Any], words: str) -> None:
    assert words in show_job(**fields)
    assert "batch" not in show_job()
    assert "in the queue" not in show_job()


def test_a_queued_job_shows_its_place_what_it_waits_for_and_when_it_may_start() -> None:
    start = datetime.now(UTC) + timedelta(minutes=90, seconds=30)
    text = show_job(queue=QueuePlace(position=3, waits_for="needs 2 cores, 1 free", expected_start_at=start))
    assert "in the queue number 3 waits for needs 2 cores, 1 free expected start in 1 h 30 min (" in text


def test_events_are_in_the_order_of_time_and_checkpoints_in_a_row_are_one() -> None:
    messages = [
        (9, "resumed", "goes on"),
        *((second, "checkpoint_saved", f"step {second}") for second in (1, 2, 3, 10)),
    ]
    events = [
        Event(id=second, time=TIME + timedelta(seconds=second), kind="report", name=name, message=message)
        for second, name, message in messages
    ]
    assert [line.split(maxsplit=1)[1] for line in printed(make_events_table(events))[1:]] == [
        "checkpoint_saved step 3 (the last of 3)",
        "resumed goes on",
        "checkpoint_saved step 10",
    ]


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(loss=1.5e-5), "loss 1.5e-05"),
        (Progress(loss=0.69314), "loss 0.6931"),
        (
            Progress(step=2, num_steps=10, eta_seconds=8.0, noise_scale=31_204.4),
            "step 2/10 · 8 s left · noise scale 31,204",
        ),
    ],
)
def test_progress_is_described_in_a_fixed_order(progress: Progress, text: str) -> None:
    assert describe_progress(progress) == text


def test_advice_is_a_row_a_batch_with_this_run_and_the_largest_useful_one_named() -> None:
    def advised(interval: NoiseInterval | None) -> list[str]:
        console = Console(width=80)
        details = advise({64: 1}, interval).model_dump()
        with console.capture() as capture:
            print_advice(console, EventReport(name="batch_advice", message="what it means", details=details))
        return [" ".join(line.split()) for line in capture.get().splitlines()]

    assert advised(NoiseInterval(12.0, 16.0, 20.0))[1:] == [
        "batch steps samples steps/fewest samples/fewest",
        "1 13.60 0.21 17.00 1.06",
        "4 4.00 0.25 5.00 1.25",
        "16 1.60 0.40 2.00 2.00 largest useful",
        "32 1.20 0.60 1.50 3.00",
        "64 1.00 1.00 1.25 5.00 this run",
        "128 0.90 1.80 1.12 9.00",
        "256 0.85 3.40 1.06 17.00",
        "what it means",
    ]
    assert advised(None) == ["what it means"]
