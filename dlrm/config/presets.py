"""Presets: named sets of values for the fields that a job document leaves out, each with its reason."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from dlrm.config.model import Architecture

PresetName = Literal["large_batch"]


@dataclass(frozen=True)
class PresetValue:
    """Value of one field in a preset."""

    value: int | float | str
    reason: str
    """Reason for the value, as it is printed."""


@dataclass(frozen=True)
class Preset:
    """Values for the fields that a document leaves out, and bounds of the batch to choose if left open.

    The batch is the largest that makes enough steps of the run, or of an epoch where `run.epochs` is left open.
    """

    architecture: Architecture
    """Architecture with which the values were chosen; it is chosen where the document leaves that open."""
    max_batch: int
    """Largest batch that is chosen, in samples."""
    min_steps: int
    """Least number of steps, counted as if all batches had the chosen size, if the batch grows."""
    min_constant_steps: int
    """The same where the batch has one size."""
    values: Mapping[str, PresetValue]
    """Values by dotted field."""


BATCH_FIELD, SCHEDULE_FIELD = "batch.global_size", "batch.schedule"
"""Dotted paths of the batch, which a preset decides by the rows, and of how it grows."""
RATE_FIELD = "dense_optimizer.learning_rate"
"""Dotted path of the learning rate of the dense parameters."""

PRESETS: dict[PresetName, Preset] = {
    "large_batch": Preset(
        architecture="dlrm",
        max_batch=524_288,
        # Where 230 to 250 steps of the last size would make the run, 524,288 that grew like this was 0.0004 below a
        # small batch (five seeds); 16,384 and 65,536 that grew eight times at once were level with one. Constant
        # batches were 0.001 to 0.004 below, and 0.001 below to 0.0003 above with 880 to 1,000 steps.
        min_steps=240,
        min_constant_steps=800,
        values={
            "dense_optimizer.name": PresetValue(
                "adam", "no optimizer that was tried was better, on real rows and on rare clicks"
            ),
            SCHEDULE_FIELD: PresetValue(
                "auto", "0.0004 ± 0.0005 below a small batch at 524,288, on 132 million synthetic rows, five seeds"
            ),
            RATE_FIELD: PresetValue(0.006, "level with 0.010 for DLRM where the batch grows and the rate does not"),
            "dense_optimizer.schedule.scaling": PresetValue(
                "none", "a rate that rose where the batch grew threw a model back at 524,288"
            ),
            "dense_optimizer.schedule.decay": PresetValue("wsd", "as good as cosine, and high for long"),
            "table_optimizer.name": PresetValue("rowwise_adagrad", "one number of state for each row"),
            "table_optimizer.learning_rate": PresetValue(0.12, "the best of those tried beside initial_accumulator"),
            "table_optimizer.initial_accumulator": PresetValue(
                0.03, "better than from 0 where clicks are rare, such as 3 %"
            ),
        },
    ),
}
"""Presets by name. Chosen by experiments (benchmarks/experiments.md)."""

_RATE_FIELDS = ("learning_rate", "schedule.base_batch", "schedule.scaling", "schedule.noise_scale")
_GROUPS: tuple[tuple[str, ...], ...] = (_RATE_FIELDS, ("schedule.decay", "schedule.power"), ("schedule", "growth"))
"""Fields of a section that mean something only together: a preset fills none of them where one is stated."""


def get_min_steps(preset: PresetName, *, is_growing: bool) -> int:
    """Return the least number of steps of a preset for a run whose batch grows, or has one size."""
    return PRESETS[preset].min_steps if is_growing else PRESETS[preset].min_constant_steps


def fill_preset(document: Any) -> Any:
    """Return a job document with the values of its preset in the fields that it leaves out.

    A section with another `name` than the preset's, such as another optimizer, gets nothing; a section that states its
    learning rate, or how it scales, keeps both. What was filled is added to the record in `filled_by_preset`, if the
    document has one. A document without a preset, with an unknown one, or that is no object, is returned unchanged.
    """
    if not isinstance(document, dict):
        return document
    fields = cast("dict[str, Any]", document)
    values = list_missing_values(fields)
    if not values:
        return fields
    filled = fields
    for field, entry in values.items():
        filled = _fill(filled, field.split("."), entry.value)
    earlier = fields.get("filled_by_preset")
    if not isinstance(earlier, list):
        return filled
    return {**filled, "filled_by_preset": [*cast("list[Any]", earlier), *values]}


def begin_record(document: Any) -> Any:
    """Return a user's job document with the record in `filled_by_preset` to which `fill_preset` adds.

    Fields there that have the value of the preset stay. The batch does not, since it looks like a stated one, and
    without a preset there is no record. What is no object, or has no list of names there, is returned unchanged.
    """
    if not isinstance(document, dict):
        return document
    fields = cast("dict[str, Any]", document)
    name, sent = fields.get("preset"), fields.get("filled_by_preset")
    names = cast("list[Any]", [] if sent is None else sent)
    if not isinstance(names, list) or not all(isinstance(field, str) for field in names):  # pyright: ignore[reportUnnecessaryIsInstance]
        return fields
    if not isinstance(name, str) or name not in PRESETS:
        return {**fields, "filled_by_preset": None}
    values = PRESETS[name].values
    record = [
        field
        for field, entry in values.items()
        if field in names
        and not _is_of_other_name(fields, field, values)
        and _get(fields, field.split(".")) == entry.value
    ]
    return {**fields, "filled_by_preset": record}


def list_missing_values(document: Mapping[str, Any]) -> dict[str, PresetValue]:
    """List the values with which its preset fills a document as it is written, by field; none without a preset."""
    name = document.get("preset")
    if not isinstance(name, str) or name not in PRESETS:
        return {}
    values = PRESETS[name].values
    return {
        field: entry
        for field, entry in values.items()
        if not _is_of_other_name(document, field, values) and not _is_stated(document, field)
    }


def list_filled_values(document: Mapping[str, Any]) -> dict[str, PresetValue]:
    """List the values with which its preset has filled a whole document, by field; none without a record of them."""
    name: PresetName | None = document["preset"]
    record: list[str] | None = document["filled_by_preset"]
    if name is None or record is None:
        return {}
    return {
        field: entry
        for field, entry in PRESETS[name].values.items()
        if field in record and _get(document, field.split(".")) == entry.value
    }


def list_scaling(document: Mapping[str, Any], sections: Collection[str]) -> dict[str, int | float | str]:
    """List what a preset says of how learning rates scale, by field, in sections of a document that leave it all out.

    A rate set there in place of the preset's needs this beside it: the preset fills it no more.
    """
    return {
        field: entry.value
        for field, entry in list_missing_values(document).items()
        if field.partition(".")[0] in sections and field.partition(".")[2] in _RATE_FIELDS[1:]
    }


def _is_of_other_name(document: Mapping[str, Any], field: str, values: Mapping[str, PresetValue]) -> bool:
    """Whether the section of `field` states another name than the preset has for it."""
    name = f"{field.partition('.')[0]}.name"
    stated = _get(document, name.split("."))
    return stated is not None and name in values and stated != values[name].value


def _is_stated(document: Mapping[str, Any], field: str) -> bool:
    """Whether the document states `field`, or one that means something only together with it."""
    section, _, name = field.partition(".")
    group = next((group for group in _GROUPS if name in group), (name,))
    stated = [other for other in group if _has(document, [section, *other.split(".")])]
    # null and false turn growth off, as its default does: they say nothing about a schedule.
    return any(other != "growth" or _get(document, [section, other]) for other in stated)


def _fill(node: Any, path: list[str], value: Any) -> Any:
    """Return a copy of `node` with `value` at the end of `path`; unchanged where something else is on the way."""
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    name, *rest = path
    return {**fields, name: _fill(fields.get(name, {}), rest, value) if rest else value}


def _has(node: Any, path: list[str]) -> bool:
    """Whether anything, also null, is stated at the end of `path`."""
    section = _get(node, path[:-1])
    return isinstance(section, Mapping) and path[-1] in section


def _get(node: Any, path: list[str]) -> Any:
    """Return what is at the end of `path`; None if there is nothing."""
    for name in path:
        if not isinstance(node, Mapping):
            return None
        node = cast("Mapping[str, Any]", node).get(name)
    return node
