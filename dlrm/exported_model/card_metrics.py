"""The part of the model card that says how good the model is: its metrics beside the metrics of simple models."""

from collections.abc import Mapping, Sequence

from dlrm.record import (
    NUM_GROUPED_ROWS,
    RECALIBRATION_FIGURES,
    SHARPNESS_FIGURES,
    YARDSTICKS,
    Course,
    EvaluationSource,
    YardstickResult,
    describe_further_figures,
    find_yardsticks,
    list_quality_warnings,
)


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_code(text: str) -> str:
    """Format `text` as Markdown code that is also valid inside a table; unprintable characters are replaced."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    fence = "``" if "`" in plain else "`"
    pad = " " if "`" in plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}".replace("|", "\\|")


METRICS_SHOWN = {
    "auc": "AUC",
    "auc_standard_error": "standard error of the AUC",
    "log_loss": "log-loss",
    "normalized_entropy": "normalized entropy",
    "calibration": "calibration",
}
"""Metrics that say how good a model is, with words for them."""


def render_quality_warnings(metrics: Mapping[str, float | None], source: EvaluationSource) -> list[str]:
    """Render what the final metrics of a run say against its model: a paragraph for each."""
    return [f"> **Warning:** {warning.message}." for warning in list_quality_warnings(metrics, source)]


def render_metrics(
    train_label_rate: float,
    metrics: Mapping[str, float | None],
    negative_sampling: float | None = None,
    named: str = "held-out rows",
) -> str:
    """Render the final metrics of a run, beside the metrics of the constant predictor and of simple models.

    negative_sampling: share of the negatives that the rows held; None for all of them. named: the rows.
    """
    if metrics.get("log_loss") is None:
        return "Nothing: the run ended before its first evaluation."
    yardsticks = find_yardsticks(metrics)
    constant = {"auc": 0.5, "log_loss": metrics.get("constant_log_loss")}
    columns = [metrics, constant, *(result.model_dump() for result in yardsticks)]
    rows = [(words, *(_format_metric(column.get(name)) for column in columns)) for name, words in METRICS_SHOWN.items()]
    others = [""] * (len(columns) - 1)
    if metrics.get("best_possible_auc") is not None:
        rows.insert(1, ("best possible AUC", _format_metric(metrics["best_possible_auc"]), *others))
    own = describe_further_figures(metrics) | {
        name: RECALIBRATION_FIGURES[name] for name in RECALIBRATION_FIGURES if name in metrics
    }
    rows += [(words, _format_own(name, metrics[name]), *others) for name, words in own.items()]
    heads = ["metric", "model", "constant predictor", *(YARDSTICKS[result.name] for result in yardsticks)]
    text = f"On the {metrics.get('num_rows') or 0:,.0f} {named}. The constant predictor predicts "
    text += f"{train_label_rate:.4f}, the label rate of the training rows, for every row."
    if negative_sampling is not None:
        text += f" All figures are at true rates: each negative counts {1 / negative_sampling:.4g} times."
    paragraphs = [text, format_table(heads, rows), *_describe_choice(metrics), *map(_describe_training, yardsticks)]
    if metrics.get("train_log_loss") is not None:
        auc, loss = (_format_metric(metrics.get(name)) for name in ("train_auc", "train_log_loss"))
        paragraphs.append(f"On a sample of its training rows: AUC {auc}, log-loss {loss}.")
    if metrics.get("hessian_eigenvalue") is not None:
        figures = [(words, _format_metric(metrics.get(name))) for name, words in SHARPNESS_FIGURES.items()]
        text = "Sharpness of its loss around the dense parameters, before a blend, and gap to evaluation rows:"
        paragraphs += [text, format_table(("", ""), figures)]
    if (noise_scale := metrics.get("noise_scale")) is not None:
        paragraphs.append(f"Noise scale of its dense gradient at the end: {noise_scale:,.0f} samples.")
    return "\n\n".join(paragraphs)


def _describe_choice(metrics: Mapping[str, float | None]) -> list[str]:
    """Describe that the rows of the figures also chose the model, where they did."""
    course = Course.from_metrics(metrics)
    if course is None or course.rows == "validation" or metrics.get("log_loss") != course.best_log_loss:
        return []
    if course.best_step == course.last_step or metrics.get("model_step", course.best_step) != course.best_step:
        return []
    return [
        f"The model after step {course.best_step:,} of {course.last_step:,} is kept, which was best on these rows: on "
        "others it is likely to be somewhat worse. Validation rows (`run.validation_fraction`) would choose it instead."
    ]


def _describe_training(result: YardstickResult) -> str:
    name = YARDSTICKS[result.name]
    return (
        f"{name[0].upper()}{name[1:]}: trained on {result.num_train_rows:,} training rows, measured on "
        f"{result.num_rows:,} of the held-out rows, in {result.seconds:.1f} s."
    )


def _format_own(name: str, value: float | None) -> str:
    return f"{value or 0:,.0f}" if name == NUM_GROUPED_ROWS or name.endswith(".num_rows") else _format_metric(value)


def _format_metric(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"
