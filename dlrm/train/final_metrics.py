"""The figures of a run that its outcome, its model and the model's card have."""

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import JobConfig
from dlrm.data.rows import DataSchema
from dlrm.gradient_stats.batch_advice import find_largest_useful_batch, get_settled_noise
from dlrm.planning.dense_size import count_dense_size, count_flops
from dlrm.record import EvaluationReport


def make_final_metrics(
    progress: RunProgress, report: EvaluationReport | None, model_step: int | None = None
) -> dict[str, float | None]:
    """Make the metrics of a run that ends at `progress`, by name: an evaluation, its speed, its noise scale.

    report: the evaluation of the model that the run leaves, or the last one if it leaves none yet. model_step: step of
    that model, if it was trained on after the evaluation.
    """
    noise = get_settled_noise(progress.noise, progress.last_evaluation)
    metrics: dict[str, float | None] = {
        "num_samples": progress.num_samples,
        "samples_per_second": progress.num_samples / max(progress.training_seconds, 1e-9),
        "noise_scale": None if noise is None else noise.value,
        "largest_useful_batch": None if noise is None else find_largest_useful_batch(noise.value),
    }
    if progress.noise.interval is not None and not _is_no_better_than_constant(progress):
        metrics["noise_scale_low"] = progress.noise.interval.low
    if progress.course is not None:
        metrics |= progress.course.to_metrics()
    if report is not None:
        metrics |= report.model_dump(exclude={"kind", "seq", "time", "step", "seconds", "grouped", "tasks"})
        metrics |= {**(report.grouped or {}), **(report.tasks or {})}
        metrics["model_step"] = report.step if model_step is None else model_step
    return metrics


def count_model_size(job: JobConfig, schema: DataSchema) -> dict[str, float | None]:
    """Count the parameters of a model, tables included, and its floating-point operations for a sample.

    Operations are counted in the forward and backward pass of the dense part, without the optimizer.
    """
    table_rows = {feature.name: feature.num_ids for feature in schema.tables}
    dims = job.model.choose_table_dims(table_rows)
    size = count_dense_size(job.model, schema.num_dense, [*dims.values()], schema.sequences)
    in_tables = sum(num_rows * dims[name] for name, num_rows in table_rows.items())
    return {
        "num_parameters": in_tables + size.num_parameters,
        "flops_per_sample": count_flops(size, job.num_copies),
    }


def _is_no_better_than_constant(progress: RunProgress) -> bool:
    return progress.last_evaluation is not None and progress.last_evaluation.is_no_better_than_constant
