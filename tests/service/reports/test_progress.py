from itertools import permutations

from dlrm.record import ProgressReport, StartReport
from service.reports.progress import ReportedProgress, present_progress
from service.store.states import JobState
from tests.made_reports import make_step

LOADING = ProgressReport(time=1.0, phase="loading", done_fraction=0.5)
STEP = make_step(3, time=2.0, num_steps=4, num_samples=300, loss=0.5, samples_per_second=50.0)
SAVING = ProgressReport(time=3.0, phase="saving")


def test_streams_in_any_order_give_the_same_progress() -> None:
    for order in permutations([LOADING, STEP, SAVING]):
        progress = ReportedProgress()
        for report in order:
            progress = progress.apply(report)
        assert (progress.phase, progress.step, progress.done_fraction) == ("saving", 3, 0.75)


def test_the_time_left_follows_the_smoothed_speed() -> None:
    progress = ReportedProgress().apply(STEP)
    assert progress.eta_seconds == 100 / 50.0
    faster = STEP.model_copy(update={"samples_per_second": 150.0})
    assert progress.apply(faster).samples_per_second == 0.9 * 50 + 0.1 * 150.0


def test_where_the_batch_grows_the_done_share_and_the_time_left_go_by_samples() -> None:
    """Three of four steps have made only 300 of the 1,500 samples."""
    growing = STEP.model_copy(update={"num_run_samples": 1500, "global_size": 100})
    progress = ReportedProgress().apply(growing)
    assert (progress.done_fraction, progress.eta_seconds) == (0.2, 1200 / 50.0)
    assert progress.apply(SAVING).done_fraction == 0.2
    last_step = growing.model_dump()
    again = progress.carry_over().apply_start(StartReport(step=3, evaluated_step=0), last_step, None)
    assert again.done_fraction == 0.2


def test_an_attempt_that_resumes_where_the_batch_grows_has_done_its_share_of_the_samples() -> None:
    growing = STEP.model_copy(update={"num_run_samples": 1500, "global_size": 100})
    start = StartReport(step=2, evaluated_step=0, num_samples=150, num_run_samples=1500, global_size=50)
    progress = ReportedProgress().apply(growing).carry_over()
    assert (progress.global_size, progress.num_run_samples) == (100, 1500)
    again = progress.apply_start(start, STEP.model_dump(), None)
    assert (again.step, again.done_fraction, again.global_size) == (2, 0.1, 50)
    assert again.apply(SAVING).done_fraction == 0.1


def test_a_step_without_a_loss_keeps_the_last_one() -> None:
    dropped = STEP.model_copy(update={"loss": None, "dropped": True})
    assert ReportedProgress().apply(STEP).apply(dropped).loss == 0.5


def test_a_preparation_says_how_far_it_is_and_training_starts_anew() -> None:
    preparing = ProgressReport(time=1.0, phase="preparing", done_fraction=0.25, message="reading: 9 rows/s")
    progress = ReportedProgress().apply(preparing)
    assert (progress.phase, progress.done_fraction, progress.message) == ("preparing", 0.25, "reading: 9 rows/s")
    progress = progress.apply(ProgressReport(time=2.0, phase="training"))
    assert (progress.phase, progress.done_fraction, progress.message) == ("training", None, None)
    assert progress.apply(STEP.model_copy(update={"time": 3.0})).done_fraction == 0.75


def test_the_noise_scale_is_the_last_steps_and_none_if_noise_hides_the_gradient() -> None:
    progress = ReportedProgress().apply(STEP.model_copy(update={"noise_scale": 900.0}))
    assert progress.noise_scale == 900.0
    assert progress.carry_over().noise_scale == 900.0
    assert progress.apply(STEP).noise_scale is None


def test_an_attempt_that_goes_back_has_the_noise_scale_of_the_last_step_that_stands() -> None:
    progress = ReportedProgress().apply(STEP.model_copy(update={"noise_scale": 900.0}))
    start = StartReport(step=1, evaluated_step=0)
    assert progress.apply_start(start, {"num_steps": 4, "loss": 0.6, "noise_scale": 500.0}, None).noise_scale == 500.0
    # A trainer that does not measure the noise scale omits it.
    assert progress.apply_start(start, {"num_steps": 4, "loss": 0.6}, None).noise_scale is None


def test_a_number_that_json_does_not_have_changes_nothing() -> None:
    endless = STEP.model_copy(update={"step": 4, "samples_per_second": float("inf"), "loss": float("nan")})
    progress = ReportedProgress().apply(STEP).apply(endless)
    assert (progress.step, progress.samples_per_second, progress.loss) == (4, 50.0, 0.5)


def test_work_after_the_last_step_has_a_progress_and_a_remaining_time_of_its_own() -> None:
    last = STEP.model_copy(update={"step": 4, "num_samples": 400})
    comparing = ProgressReport(time=3.0, phase="finishing", done_fraction=0.3, eta_seconds=40.0, message="comparing")
    progress = ReportedProgress().apply(last).apply(comparing)
    assert (progress.phase, progress.done_fraction, progress.eta_seconds) == ("finishing", 0.3, 40.0)
    # The estimate of the steps says nothing about it.
    unknown = ReportedProgress().apply(STEP).apply(comparing.model_copy(update={"eta_seconds": None}))
    assert unknown.eta_seconds is None


def test_a_job_that_has_ended_shows_how_much_it_trained_not_how_far_its_last_work_was() -> None:
    finishing = ProgressReport(time=4.0, phase="finishing", done_fraction=0.9)
    progress = ReportedProgress().apply(STEP).apply(finishing).model_dump()
    shown = {state: present_progress(state, progress)["done_fraction"] for state in JobState}
    assert (shown[JobState.RUNNING], shown[JobState.FAILED], shown[JobState.SUCCEEDED]) == (0.9, 0.75, 1.0)
