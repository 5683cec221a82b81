"""The model card: what a model is, what data it was trained on, how good it was there, and what it is not for.

All but the last section comes from the files of a model, so that a published model gets a card of its own.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from dlrm.config import CategoricalColumn, format_count, is_averaging
from dlrm.data.dataset import Dataset
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import (
    CountedVocabulary,
    DynamicVocabulary,
    HashedVocabulary,
    RangeVocabulary,
    Vocabulary,
)
from dlrm.data.packed.layout import META, read_meta
from dlrm.exported_model.card_metrics import format_code, format_table, render_metrics, render_quality_warnings
from dlrm.exported_model.layout import Compression, SavedConfig
from dlrm.record import EvaluationSource

_COMPRESSED_TABLES = {
    "fp32": "Tables are in fp32, as they were trained.",
    "int8": "Every row of a table is quantized to int8, with a scale and an offset in fp32.",
    "int4": "Every row of a table is quantized to int4, with a scale and an offset in fp16.",
}
_COMPRESSED_DENSE = {
    "fp32": "Matrices of the dense part are in fp32.",
    "int8": "Matrices of the dense part are stored in int8, with a scale for each output, and are fp32 in memory.",
}
MAX_SHOWN = 40
"""Largest number of files, and of columns, that the card lists."""


def render_model_card(config: SavedConfig, dataset: Dataset, metrics: Mapping[str, float | None]) -> str:
    """Render the card with the places where the model was made. metrics: final metrics of the run, by name."""
    text = _render_provenance(config, dataset)
    return render_card(config, dataset.encoders, metrics, {"Where it was made": text})


def render_card(
    config: SavedConfig, encoders: Encoders | None, metrics: Mapping[str, float | None], last: Mapping[str, str]
) -> str:
    """Render a card as Markdown.

    encoders: None if the model was trained on a synthetic log. metrics: metrics of the model, by name. last: further
    sections by their titles.
    """
    name = str(config.training["name"])
    warnings = render_quality_warnings(metrics, EvaluationSource.of_job(config.data.format, config.data.eval))
    sections = {
        "": "\n\n".join([_render_summary(config, encoders), *warnings]),
        "Use": _render_use(encoders),
        **({} if config.compression is None else {"Compression": describe_compression(config.compression)}),
        "Data": _render_data(config),
        f"Measured on {name_measured_rows(config)}": _render_measured(config, metrics),
        "Columns": _render_columns(config, encoders),
        "Training": _render_training(config, metrics),
        "Limits": _render_limits(config, encoders),
        **last,
    }
    parts = [f"## {title}\n\n{text}" if title else text for title, text in sections.items()]
    return "\n\n".join([f"# {name}", *parts]) + "\n"


def _render_summary(config: SavedConfig, encoders: Encoders | None) -> str:
    inputs: list[str] = []
    if config.num_dense:
        inputs.append(format_count(config.num_dense, "dense feature"))
    if config.table_rows:
        dims = config.model.choose_table_dims(config.table_rows)
        num_bytes = 4 * sum(num_rows * dims[name] for name, num_rows in config.table_rows.items())
        least, most = min(dims.values()), max(dims.values())
        of_dims = f"{least}" if least == most else f"{least} to {most}"
        in_fp32 = "" if config.compression is None else " in fp32"
        size = f"{sum(config.table_rows.values()):,} rows by {of_dims} ({num_bytes / 1e6:,.1f} MB{in_fp32})"
        inputs.append(f"{format_count(len(config.table_rows), 'embedding table')} of {size}")
    positive = None if encoders is None else encoders.schema.positive
    label = "1" if positive is None else format_code(positive)
    text = f"A click-through-rate model ({config.model.architecture}): the probability that a row's label is {label}, "
    text = f"{text}from {' and '.join(inputs)}."
    if further := (config.model.tasks or [])[1:]:
        described = [
            f"{format_code(task.name)} ({task.kind} of {format_code(task.label or '')}"
            + (f", given {format_code(task.given)})" if task.given else ")")
            for task in further
        ]
        text += f" It also predicts {', '.join(described)}: `predict` has a column for each task."
    if (share := config.first_order_share) is not None:
        text += (
            f" Its logit is {1 - share:.1f} times that of the trained model plus {share:.1f} times that of a logistic "
            "regression on the same columns; validation rows chose these weights."
        )
    if (share := config.data.negative_sampling) is not None:
        text += (
            f" Its training rows held a share of {share:g} of the negatives: {math.log(share):.4f} is added to its "
            "logit, so that its probabilities are true rates."
        )
    if (recalibration := config.recalibration) is not None:
        text += f" Its logit is then mapped ({recalibration.kind}) as its validation rows ask for."
    return text


def _render_use(encoders: Encoders | None) -> str:
    if encoders is None:
        return "It was trained on a synthetic log and cannot score files; `dlrm evaluate` evaluates it on that log."
    return """\
```sh
pip install --no-deps -r requirements/predict.txt        # in a checkout of dlrm-service: torch, and no fbgemm
pip install .                                            # there too: the dlrm command and `import dlrm`
dlrm predict path/to/model rows.parquet --output scores.parquet
```

```python
import dlrm

model = dlrm.load_model("path/to/model")
row = {name: None for name in model.columns}  # None: a missing value
model.predict(row)  # one probability per row; lists of values score many rows
```"""


def describe_compression(compression: Compression) -> str:
    """Describe what was done to the weights of a model after its training."""
    pruned = f"{100 * compression.prune:g} % of their elements, the smallest, were set to zero."
    done = [_COMPRESSED_TABLES[compression.tables], _COMPRESSED_DENSE[compression.dense]]
    trained = "The model was trained on with these at zero" if compression.is_retrained else "Nothing was trained"
    return " ".join([*done, *([pruned] if compression.prune else []), f"{trained} afterwards."])


def _render_data(config: SavedConfig) -> str:
    rows, held_out = config.rows, describe_held_out(config)
    facts = {"held out": held_out}
    if rows is not None:
        if rows.num_held_out_rows is not None:
            held_out = f"{rows.num_held_out_rows:,} held out ({held_out})"
        facts = {
            "rows": f"{rows.num_train_rows:,} to train on, {held_out}",
            "label rate": f"{100 * rows.label_rate:.2f} % of the training rows are positive",
        }
    if (share := config.data.negative_sampling) is not None:
        true_rate = f"about {100 * config.train_label_rate:.2f} % of all rows are positive"
        facts["negatives"] = f"a share of {share:g} of all, drawn at random; {true_rate}"
    if rows is not None and rows.mean_weight is not None:
        facts["weights"] = f"mean {rows.mean_weight:.4g} over the training rows; all rates are weighted"
    if (log := config.data.synthetic) is not None:
        facts["source"] = f"a synthetic click log, seed {log.seed}, {log.num_ids:,} ids in its largest column"
    if rows is not None and rows.num_bad_rows is not None:
        facts["bad rows"] = f"{rows.num_bad_rows:,} left out"
    return format_table(("", ""), list(facts.items()))


def _render_measured(config: SavedConfig, metrics: Mapping[str, float | None]) -> str:
    if config.position is not None and config.position.order:
        changes = format_count(config.position.order, "delta")
        return f"Nothing: the weights are of step {config.step}, after {changes}, and nobody has measured them."
    # Files that were given may hold another share of the negatives than the training rows.
    sampling = None if config.is_measured_on_given_files else config.data.negative_sampling
    return render_metrics(config.train_label_rate, metrics, sampling, name_measured_rows(config))


def name_measured_rows(config: SavedConfig) -> str:
    """Name the rows that the metrics of a model are of."""
    if config.is_measured_on_given_files:
        return "rows of files given to dlrm compress"
    return "held-out rows" if config.data.follow is None else "newest rows, before it was trained on them"


def _render_provenance(config: SavedConfig, dataset: Dataset) -> str:
    """Render what is private: places of files and of models, and the whole job."""
    facts: dict[str, str] = {}
    if config.packed is not None:
        facts["prepared rows"] = format_code(config.packed.directory)
        facts["checksum of the rows"] = format_code(config.packed.checksum)
    if (warm_start := config.training["run"]["warm_start"]) is not None:
        facts["warm start"] = f"from {format_code(str(warm_start['from']))}"
    files = ""
    if config.packed is not None and dataset.directory is not None:
        meta, growing = read_meta(dataset.directory), dataset.growing
        facts["prepared"] = _format_time((dataset.directory / META).stat().st_mtime)
        facts |= {f"version of {format_code(name)}": version for name, version in meta.tables.items()}
        names = meta.sources if growing is None else [*reversed(growing.files)]
        files = f"{'Files' if growing is None else 'Files, the last one first'}:\n\n{_list_files(names)}"
    parts = [
        "This section holds paths, labels and addresses. The card that `dlrm export --to-hub` writes is without them.",
        format_table(("", ""), list(facts.items())) if facts else "",
        files,
        "The job with all defaults filled in; `dlrm train` accepts it as a file:",
        render_document(config),
    ]
    return "\n\n".join(filter(None, parts))


def render_document(config: SavedConfig) -> str:
    """Render the job document as a block of JSON."""
    document = {**config.training, "model": config.model.model_dump(mode="json")}
    document["data"] = config.data.model_dump(mode="json")
    return f"```json\n{json.dumps(document, indent=2)}\n```"


def describe_held_out(config: SavedConfig) -> str:
    """Describe which rows the model was measured on."""
    if config.data.follow is not None:
        return "each file measured before it was trained on"
    if config.data.eval:
        return "separate files"
    if config.data.format == "packed":
        return "as prepared"
    rule = "by a hash of their number" if config.data.split == "hash" else "the last ones"
    return f"{100 * config.data.eval_fraction:g} %, {rule}"


def _list_files(names: Sequence[str]) -> str:
    lines = [f"- {format_code(name)}" for name in names[:MAX_SHOWN]]
    if len(names) > MAX_SHOWN:
        lines.append(f"- and {len(names) - MAX_SHOWN:,} more")
    return "\n".join(lines)


def _render_columns(config: SavedConfig, encoders: Encoders | None) -> str:
    if encoders is None:
        names = ", ".join(f"{format_code(name)} {rows:,}" for name, rows in config.table_rows.items())
        return f"Columns of the synthetic log, with the rows of their tables: {names}."
    lengths = encoders.schema.list_lengths
    # The elements of a list, which mostly have one transform, share a row.
    uses = dict.fromkeys((column.name, column.transform) for column in encoders.schema.dense)
    rows = [
        (format_code(name), f"list of {lengths[name]} numbers" if name in lengths else "number", transform)
        for name, transform in uses
    ]
    for column, vocabulary in zip(encoders.schema.categorical, encoders.vocabularies, strict=True):
        if column.sequence is not None:
            use = f"a sequence, compared with {format_code(column.sequence.target)} and in its table"
        else:
            use = f"{_describe_use(column, vocabulary)} {vocabulary.num_ids:,} table rows"
        rows.append((format_code(column.name), _describe_values(column), use))
    shown = format_table(("column", "value", "used as"), rows[:MAX_SHOWN])
    return shown if len(rows) <= MAX_SHOWN else f"{shown}\n\nand {len(rows) - MAX_SHOWN:,} more, in `config.json`."


def _describe_values(column: CategoricalColumn) -> str:
    if column.bucketize is not None:
        return "number"
    if column.time_part is not None:
        return "time"
    if column.sequence is not None:
        return f"list of {column.type}s, of which the {column.sequence.keep} {column.sequence.max_length} are read"
    return f"list of {column.type}s" if column.multi_hot else column.type


def _describe_use(column: CategoricalColumn, vocabulary: Vocabulary) -> str:
    if isinstance(vocabulary, RangeVocabulary):
        kind = "ranges" if column.time_part is None else f"{column.time_part} in UTC"
        return f"{kind},"
    if isinstance(vocabulary, DynamicVocabulary):
        return "ids that come and go,"
    return "hashed into" if isinstance(vocabulary, HashedVocabulary) else "counted,"


def _render_training(config: SavedConfig, metrics: Mapping[str, float | None]) -> str:
    warm_start = config.training["run"].get("warm_start")
    start = "from random weights" if warm_start is None else "from another model"
    averaging = config.training.get("averaging")
    average = ""
    if averaging is not None:
        share = 100 * averaging["half_life_fraction"]
        average = f" Its weights are an average over the steps, whose half-life is {share:g} % of the run."
    elif is_averaging(config.training["dense_optimizer"]["name"]):
        average = " Its dense parameters are an average over the steps."
    versions = ", ".join(f"{name} {version}" for name, version in config.versions.items())
    num_samples = metrics.get("num_samples")
    samples = "" if num_samples is None else f", over {num_samples:,.0f} samples"
    return f"Exported {_format_time(config.exported_at)}. Trained {start}{samples}, with {versions}.{average}"


def _render_limits(config: SavedConfig, encoders: Encoders | None) -> str:
    held_out = "separate files" if config.data.eval else "rows held out of the same log"
    if config.is_measured_on_given_files or config.data.follow is not None:
        held_out = name_measured_rows(config)
    sentences = [
        f"Measured on {held_out}.",
        "Nothing is known about other traffic, later times, or fairness between groups of users.",
        "Probabilities are those of rows like the training rows"
        + (
            ": where negatives were left out, they are too high."
            if config.data.negative_sampling is None
            else ", with the negatives that were left out."
        ),
    ]
    if encoders is None:
        return " ".join([*sentences, "Its ids are those of the synthetic log and mean nothing elsewhere."])
    if any(isinstance(vocabulary, DynamicVocabulary) for vocabulary in encoders.vocabularies):
        sentences.append("Ids that come and go have their rows as at the end of the training rows.")
    if any(isinstance(vocabulary, CountedVocabulary | DynamicVocabulary) for vocabulary in encoders.vocabularies):
        sentences.append("Values that the training rows had too rarely, or never, share one row of each table.")
    columns = zip(encoders.schema.categorical, encoders.vocabularies, strict=True)
    hashed = [format_code(column.name) for column, vocabulary in columns if isinstance(vocabulary, HashedVocabulary)]
    if hashed:
        columns_text = ", ".join(hashed)
        sentences.append(
            f"Values of {columns_text} share rows by a hash, whether or not they occur in the training rows."
        )
    return " ".join(sentences)


def _format_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
