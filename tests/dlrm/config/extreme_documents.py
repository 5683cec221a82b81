"""Job documents with extreme numbers in random fields, found by walking the fields of the document itself."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dlrm.config import JobSpec

Path = tuple[str | int, ...]
BASE: dict[str, Any] = {"data": {"format": "synthetic", "synthetic": {"num_rows": 20_000}}}
TINY, FP32_MAX, FP64_MAX = 5e-324, 3.4028234663852886e38, 1.7976931348623157e308
EXTREMES = st.one_of(
    st.sampled_from([0, -1, 1, 2, 2**24, 2**31, 2**63 - 1, 2**64, 10**400, -(10**400)]),
    st.sampled_from([0.0, -0.0, TINY, 1e-300, 1e-38, 1e-30, 0.999_999_999_999, 1.0, 1e6, FP32_MAX, 1e300, FP64_MAX]),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
)


def list_numbers(annotation: Any, constraints: list[Any], path: Path) -> Iterator[tuple[Path, type, list[Any]]]:
    """List the numbers that a type has, each with its path in a document, its type and its constraints.

    Entries of lists have the index 0, those of dictionaries the key "*".
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        own = [
            part for found in arguments[1:] for part in (found.metadata if isinstance(found, FieldInfo) else [found])
        ]
        yield from list_numbers(arguments[0], constraints + own, path)
    elif annotation in (int, float):
        yield path, annotation, constraints
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from list_numbers(field.annotation, list(field.metadata), (*path, field.alias or name))
    elif origin in (list, dict):
        yield from list_numbers(arguments[-1], [], (*path, 0 if origin is list else "*"))
    elif origin is not Literal:
        for argument in arguments:
            yield from list_numbers(argument, constraints, path)


PATHS = sorted({path for path, _, _ in list_numbers(JobSpec, [], ()) if path[0] != "filled_by_preset"}, key=str)


def set_value(node: Any, path: Path, value: Any) -> Any:
    """Return a copy of a document with `value` at the end of `path`, and whatever it needs on the way."""
    if not path:
        return value
    first, *rest = path
    if isinstance(first, int):
        entries = node if isinstance(node, list) and node else [{}]
        return [set_value(entries[0], tuple(rest), value), *entries[1:]]
    fields = node if isinstance(node, dict) else {}
    return {**fields, first: set_value(fields.get(first), tuple(rest), value)}


@st.composite
def draw_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a document with extreme numbers in one to three fields, and the other settings that give them a meaning."""
    document = draw(st.sampled_from([BASE, {**BASE, "preset": "large_batch"}]))
    names = st.sampled_from(["sgd", "adamw", "lars", "soap", "adafactor", "schedule_free"])
    if draw(st.booleans()):
        document = set_value(document, ("dense_optimizer", "name"), draw(names))
    for section in draw(st.sets(st.sampled_from(["dense_optimizer", "table_optimizer"]))):
        scaling = draw(st.sampled_from(["sqrt", "linear", "legw", "noise", "adascale"]))
        document = set_value(document, (section, "schedule", "scaling"), scaling)
        if scaling == "noise":
            document = set_value(document, (section, "schedule", "noise_scale"), draw(st.floats(1e-6, 1e15)))
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3)):
        document = set_value(document, path, draw(EXTREMES))
    return document
