"""The training loop over real ranks: dropped steps, divergence, and stopping at one agreed step."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import BatchStage, MomentsConfig, VarianceReductionConfig
from dlrm.data.batches import Batch
from dlrm.optimizers import LearningRates
from dlrm.record import AttemptDirectory, EventReport, SpoolReader, StartReport, StepReport, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train.evaluator import DivergedError
from dlrm.train.measurement import Readback
from dlrm.train.stages import StageSequence
from dlrm.train.stop_request import StopRequest
from dlrm.train.trainer import Trainer
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, draw_batches
from tests.distributed.saving import resume_run
from tests.distributed.training import TrainingSetting
from tests.rank_pool.pool import RankPools

SETTING = TrainingSetting(256, 64, "rowwise_adagrad")


def draw_batches_with_nan(nan_steps: set[int], num_steps: int = 8) -> list[GlobalBatch]:
    """Batches whose NaN lies in the second half, which is rank 1's of two."""
    batches = draw_batches(num_steps, 256, [rows for _, rows in SETTING.table_rows])
    for step in nan_steps:
        batches[step].dense[200, 0] = np.nan
    return batches


def run_loop(
    ranks: Ranks,
    directory: Path,
    batches: list[GlobalBatch],
    stop_rank_1_in_step: int | None,
    transport: str = "auto",
    start: RunProgress | None = None,
    num_rows: int | None = None,
    setting: TrainingSetting = SETTING,
) -> tuple[str, RunProgress]:
    setting = replace(setting, transport=transport)
    resolved = setting.resolve_job(ranks.world_size)
    reporter = Reporter(AttemptDirectory(directory), ranks.rank)
    stop = StopRequest()

    def shares() -> Iterator[Batch]:
        for number, batch in enumerate(batches, start=1):
            # A batch is fetched before the step of the one ahead of it.
            if ranks.rank == 1 and number - 1 == stop_rank_1_in_step:
                stop.is_requested = True
            yield batch.cut_share(ranks.rank, ranks.world_size)

    saving = resume_run(ranks, directory, setting)
    progress = start or RunProgress(num_steps=0)
    stages = StageSequence(resolved.job, num_rows or sum(batch.num_valid for batch in batches), progress, ranks)
    # Nothing is evaluated.
    stages.evaluation_steps = frozenset()
    trainer = Trainer(
        step=saving.parts.step,
        evaluate=None,  # pyright: ignore[reportArgumentType] # no step below is evaluated
        validate=None,
        measure_train=None,
        rates=LearningRates(resolved.job, stages.num_run_rows, stages.stages[0]),
        reporter=reporter,
        stop=stop,
        saver=saving.saver,
        ranks=ranks,
        progress=progress,
        stages=stages,
        open_batches=lambda _: nullcontext(shares()),
        target_auc=None,
        patience=None,
        keeps_best=True,
    )
    try:
        ended: str = trainer.train()
    except DivergedError as error:
        ended = str(error)
    return ended, progress


def run_measured_loop(
    ranks: Ranks, directory: Path, batches: list[GlobalBatch], stop_rank_1_in_step: int | None, *, is_immediate: bool
) -> tuple[str, RunProgress]:
    """Run the loop with variance reduction. is_immediate: whether measurements are on the host at once, as on a CPU."""
    setting = replace(SETTING, moments=MomentsConfig(every=1), variance_reduction=VarianceReductionConfig())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Readback, "is_immediate", is_immediate)
        return run_loop(ranks, directory, batches, stop_rank_1_in_step, setting=setting)


@pytest.mark.parametrize("stop_in_step", [None, 4], ids=["to its end", "to a stop"])
def test_late_measurements_are_in_the_final_progress_and_in_the_next_report(
    rank_pools: RankPools, tmp_path: Path, stop_in_step: int | None
):
    progresses: list[RunProgress] = []
    by_step: list[list[object]] = []
    for is_immediate in (True, False):
        directory = tmp_path / str(is_immediate)
        batches = draw_batches_with_nan({2})
        answers = rank_pools.of(2).run(run_measured_loop, directory, batches, stop_in_step, is_immediate=is_immediate)
        progresses += [progress.model_copy(update={"training_seconds": 0.0}) for _, progress in answers]
        reports = [report for report in read_reports(directory, 0, "metrics") if isinstance(report, StepReport)]
        by_step.append([(report.gsnr, report.share_at_gamma) for report in reports])
    assert progresses[0].noise.num_measured == (stop_in_step or 8) - 1
    assert all(progress == progresses[0] for progress in progresses)
    at_once, late = by_step
    assert late[:-1] == [(None, None), *at_once[:-2]]
    assert late[-1] == (at_once[-2] if stop_in_step is None else at_once[-1])


def read_reports(directory: Path, rank: int, stream: str) -> list[object]:
    lines = SpoolReader(AttemptDirectory(directory).spool_file(rank, stream)).read()
    return [parse_report(line) for line in lines]


def test_three_dropped_steps_in_a_row_end_the_run_on_every_rank(rank_pools: RankPools, tmp_path: Path):
    answers = rank_pools.of(2).run(run_loop, tmp_path, draw_batches_with_nan({1, 3, 4, 5}), None)
    for ended, progress in answers:
        assert "not finite in 3 steps in a row, up to step 6" in ended
        assert "lower dense_optimizer.learning_rate" in ended
        assert progress.step == 6
    events = [report for report in read_reports(tmp_path, 0, "events") if isinstance(report, EventReport)]
    assert [event.details["step"] for event in events if event.name == "step_dropped"] == [2, 4, 5, 6]
    steps = [report for report in read_reports(tmp_path, 0, "metrics") if isinstance(report, StepReport)]
    assert [step.dropped for step in steps] == [False, True, False, True, True, True]
    assert all((step.loss is None) == step.dropped for step in steps)


def test_a_run_whose_epochs_ended_with_short_batches_continues_at_the_rate_of_its_rows(
    rank_pools: RankPools, tmp_path: Path
):
    """Ten steps made as many rows as six full batches have; what follows is at the rates of steps 7 and 8."""
    start = RunProgress(num_steps=20, step=10, num_samples=6 * 256)
    rank_pools.of(1).run(run_loop, tmp_path, draw_batches_with_nan(set(), num_steps=2), None, "auto", start, 8 * 256)
    _, *steps = read_reports(tmp_path, 0, "metrics")
    job, num_rows = SETTING.resolve_job(1).job, 8 * 256
    stage = BatchStage(256, 256, 1, 0, 0, num_rows)
    rates = LearningRates(job, num_rows, stage)
    found = [report.dense_learning_rate for report in steps if isinstance(report, StepReport)]
    assert found == [rates.at(6 * 256, stage).dense, rates.at(7 * 256, stage).dense]
    assert found[0] != found[1]


def test_reports_about_the_whole_run_come_from_one_rank(rank_pools: RankPools, tmp_path: Path):
    rank_pools.of(2).run(run_loop, tmp_path, draw_batches_with_nan(set()), None)
    begin, *steps = read_reports(tmp_path, 0, "metrics")
    assert isinstance(begin, StartReport)
    assert (begin.step, begin.evaluated_step) == (0, 0)
    assert (begin.num_samples, begin.num_run_samples, begin.global_size) == (0, 8 * 256, 256)
    assert [report.step for report in steps if isinstance(report, StepReport)] == [*range(1, 9)]
    assert read_reports(tmp_path, 1, "metrics") == []
