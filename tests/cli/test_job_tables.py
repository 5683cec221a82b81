from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

from cli.local.progress import describe_progress
from cli.render.job_tables import make_events_table, make_job_table, make_jobs_table, make_result_table
from cli.render.quality import print_advice, print_comparison
from dlrm.gradient_stats.batch_advice import advise
from dlrm.gradient_stats.noise import NoiseInterval
from dlrm.record import BatchAdvice, EventReport, YardstickResult
from service.client import Attempt, BatchStage, Event, Job, JobDetails, Progress, QueuePlace

TIME = datetime(2026, 1, 1, tzinfo=UTC)


def shown(result: dict[str, Any]) -> str:
    return printed(make_result_table(result))


def printed(table: Table) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def advised(advice: BatchAdvice) -> str:
    """What is printed of it at the end of a run."""
    console = Console(width=80)
    with console.capture() as capture:
        print_advice(console, EventReport(name="batch_advice", message="what it means", details=advice.model_dump()))
    return capture.get()


def event(seconds: int, name: str, message: str) -> Event:
    return Event(id=seconds, time=TIME + timedelta(seconds=seconds), kind="report", name=name, message=message)


def test_metrics_of_rows_that_all_have_one_label_are_called_undefined() -> None:
    text = shown({"auc": None, "log_loss": 0.2, "normalized_entropy": None, "calibration": 1.3})
    assert text.count("undefined: all rows have the same label") == 2


def test_metrics_that_were_not_measured_are_left_out() -> None:
    assert shown({"auc": None, "log_loss": None, "num_steps": 7}).split() == ["steps", "7"]


def test_an_early_end_is_a_sentence_of_the_result() -> None:
    assert "end the run ended early, after step 60" in " ".join(
        shown({"message": "the run ended early, after step 60 of 200", "num_steps": 60}).split()
    )
    assert shown({"message": "", "num_steps": 7}).split() == ["steps", "7"]


def test_an_auc_is_shown_with_its_standard_error() -> None:
    assert "0.7812 ± 0.0021 (standard error)" in shown({"auc": 0.78124, "auc_standard_error": 0.00213, "log_loss": 0.4})


def test_a_model_is_shown_between_the_simple_models_that_were_measured_within_80_columns() -> None:
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
    metrics = {
        "auc": 0.78124,
        "auc_standard_error": 0.00213,
        "log_loss": 0.44,
        "calibration": 0.98,
        "constant_log_loss": 0.55,
        "num_samples": 1000.0,
        "samples_per_second": 50.0,
        **trees.to_metrics(),
    }
    console = Console(width=80)
    with console.capture() as capture:
        print_comparison(console, metrics)
    lines = [line.split() for line in capture.get().splitlines()[-3:]]
    assert lines == [
        ["this", "model", "0.7812", "±", "0.0021", "0.4400", "0.980", "20.0"],
        ["scikit-learn's", "trees", "0.7900", "±", "0.0019", "0.4300", "1.002", "12.3", "300,000"],
        ["constant", "predictor", "0.5500"],
    ]


def test_figures_on_training_rows_have_lines_of_their_own_where_they_were_measured() -> None:
    metrics = {"auc": 0.78124, "log_loss": 0.44, "train_auc": 0.79456, "train_log_loss": 0.4321}
    lines = [line.split() for line in shown(metrics).splitlines()]
    assert ["AUC", "on", "training", "rows", "0.7946"] in lines
    assert ["log-loss", "on", "training", "rows", "0.4321"] in lines
    assert "training" not in shown({**metrics, "train_auc": None, "train_log_loss": None})


def test_where_nothing_was_measured_there_is_no_comparison() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        print_comparison(console, {"auc": 0.7, "log_loss": 0.4})
    assert capture.get() == ""


def test_a_job_ran_for_as_long_as_its_attempts_together() -> None:
    spans = [(0, 57), (120, 16), (200, 97)]
    attempts = [
        Attempt(
            id=f"att_{number}",
            number=number,
            state="FAILED",
            started_at=TIME + timedelta(seconds=start),
            finished_at=TIME + timedelta(seconds=start + lasted),
        )
        for number, (start, lasted) in enumerate(spans, start=1)
    ]
    job = JobDetails(id="job_1", name="job", state="FAILED", created_at=TIME, started_at=TIME, world_size=1)
    assert "2 min 50 s" in printed(make_job_table(job, attempts))
    assert "ran for" not in printed(make_job_table(job, []))


def test_jobs_of_several_owners_are_shown_with_their_owners() -> None:
    jobs = [
        Job(id=f"job_{owner[:3]}", name="job", owner=owner, state="QUEUED", created_at=TIME, world_size=1)
        for owner in ("alice", "bob\x1b")
    ]
    lines = [line.split() for line in printed(make_jobs_table(jobs)).splitlines()]
    assert lines[0][:4] == ["id", "owner", "name", "state"]
    assert [line[:3] for line in lines[1:]] == [["job_ali", "alice", "job"], ["job_bob", "bob\\x1b", "job"]]
    assert "owner" not in printed(make_jobs_table(jobs[:1]))


def test_a_shown_job_has_its_owner_and_the_key_that_submitted_it() -> None:
    job = JobDetails(
        id="job_1", name="job", owner="alice", created_by="laptop", state="FAILED", created_at=TIME, world_size=1
    )
    assert ["owner", "alice", "(key", "laptop)"] in [
        line.split() for line in printed(make_job_table(job, [])).splitlines()
    ]


def test_a_queued_job_shows_its_place_what_it_waits_for_and_when_it_may_start() -> None:
    place = QueuePlace(
        position=3,
        waits_for="needs 2 cores, 1 free",
        expected_start_at=datetime.now(UTC) + timedelta(minutes=90, seconds=30),
    )
    job = JobDetails(id="job_1", name="job", state="QUEUED", created_at=TIME, world_size=1, queue=place)
    lines = [line.split() for line in printed(make_job_table(job, [])).splitlines()]
    assert ["in", "the", "queue", "number", "3"] in lines
    assert ["waits", "for", "needs", "2", "cores,", "1", "free"] in lines
    (start,) = [" ".join(line) for line in lines if line[:2] == ["expected", "start"]]
    assert "in 1 h 30 min (" in start
    first = job.model_copy(update={"queue": QueuePlace(position=1, waits_for="", expected_start_at=None)})
    text = printed(make_job_table(first, []))
    assert "number 1" in text
    assert "expected start" not in text
    assert "in the queue" not in printed(make_job_table(job.model_copy(update={"queue": None}), []))


def test_a_job_whose_batch_grows_shows_the_present_batch_and_its_stages() -> None:
    stages = [
        BatchStage(global_size=1024, until_fraction=0.25),
        BatchStage(global_size=4096, until_fraction=0.5, is_current=True),
        BatchStage(global_size=16_384),
    ]
    job = JobDetails(id="job_1", name="job", state="RUNNING", created_at=TIME, world_size=1, batch_stages=stages)
    told = "stages: 1,024 until 25 % of the samples, then 4,096 until 50 % of the samples, then 16,384"
    assert f"batch 4,096 samples now; {told}" in " ".join(printed(make_job_table(job, [])).split())
    waiting = job.model_copy(update={"batch_stages": [stages[0], stages[2]]})
    assert "batch stages: 1,024 until 25 %" in " ".join(printed(make_job_table(waiting, [])).split())
    assert "batch" not in printed(make_job_table(job.model_copy(update={"batch_stages": []}), []))


def test_many_stages_are_shortened_to_the_first_a_count_and_the_last_two() -> None:
    stages = [BatchStage(global_size=1000 + number, until_fraction=number / 10) for number in range(1, 10)]
    stages = [*stages, BatchStage(global_size=1010, is_current=True)]
    job = JobDetails(id="job_1", name="job", state="RUNNING", created_at=TIME, world_size=1, batch_stages=stages)
    told = "1,001 until 10 % of the samples, then 7 more sizes, then 1,009 until 90 % of the samples, then 1,010"
    assert f"batch 1,010 samples now; stages: {told}" in " ".join(printed(make_job_table(job, [])).split())


def test_events_are_in_the_order_of_time_and_checkpoints_in_a_row_are_one() -> None:
    events = [
        event(9, "resumed", "goes on"),
        *(event(second, "checkpoint_saved", f"step {second}") for second in (1, 2, 3, 10)),
    ]
    lines = [line.rstrip().split(maxsplit=2)[1:] for line in printed(make_events_table(events)).splitlines()[1:]]
    assert lines == [
        ["checkpoint_saved", "step 3 (the last of 3)"],
        ["resumed", "goes on"],
        ["checkpoint_saved", "step 10"],
    ]


def test_a_small_loss_keeps_its_digits() -> None:
    assert describe_progress(Progress(loss=1.5e-5)) == "loss 1.5e-05"
    assert describe_progress(Progress(loss=0.69314)) == "loss 0.6931"


def test_the_noise_scale_is_a_whole_number_of_samples_at_the_end_of_the_line() -> None:
    progress = Progress(step=2, num_steps=10, eta_seconds=8.0, noise_scale=31_204.4)
    assert describe_progress(progress) == "step 2/10 · 8 s left · noise scale 31,204"
    assert shown({"noise_scale": 31_204.4, "largest_useful_batch": 32_768.0}).splitlines() == [
        "noise scale           31,204",
        "largest useful batch  32,768",
    ]


def test_advice_is_a_row_a_batch_with_this_run_and_the_largest_useful_one_named() -> None:
    lines = [line.split() for line in advised(advise({64: 1}, NoiseInterval(12.0, 16.0, 20.0))).splitlines()]
    assert lines[1] == ["batch", "steps", "samples", "steps/fewest", "samples/fewest"]
    assert lines[2:-1] == [
        ["1", "13.60", "0.21", "17.00", "1.06"],
        ["4", "4.00", "0.25", "5.00", "1.25"],
        ["16", "1.60", "0.40", "2.00", "2.00", "largest", "useful"],
        ["32", "1.20", "0.60", "1.50", "3.00"],
        ["64", "1.00", "1.00", "1.25", "5.00", "this", "run"],
        ["128", "0.90", "1.80", "1.12", "9.00"],
        ["256", "0.85", "3.40", "1.06", "17.00"],
    ]
    assert lines[-1] == ["what", "it", "means"]


def test_without_a_noise_scale_the_advice_is_its_reason_alone() -> None:
    assert advised(advise({64: 1}, None)) == "what it means\n"
