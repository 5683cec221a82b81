"""Errors in a job document: each one names the field at fault and what would be valid."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import NoneType
from typing import Any, LiteralString, TypeVar, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from dlrm.config.messages import format_count
from dlrm.config.patterns import hide_credentials

Document = TypeVar("Document", bound=BaseModel)

CROSS_FIELD = "cross_field"
_OUT_OF_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
"""Kinds of pydantic's errors about a number beyond one of its bounds."""
MAX_ERRORS = 1000
"""Largest number of errors that are reported for one document; a service accepts documents from any user."""

_MESSAGES = {
    "model_type": ("should be an object (a table in TOML)", ""),
    "dict_type": ("should be an object (a table in TOML)", '{"name": value, …}'),
    "list_type": ("should be a list", "[…]"),
    "int_type": ("should be a whole number", ""),
    "float_type": ("should be a number", ""),
    "string_type": ("should be a string", ""),
    "bool_type": ("should be true or false", ""),
    "finite_number": ("should be a finite number", ""),
    "string_pattern_mismatch": (
        "is not a valid name",
        "1 to 63 letters, digits, dots, dashes and underscores; the first and the last one a letter or a digit",
    ),
}
"""Message and valid values by kind of pydantic's error, for kinds that pydantic words for programmers."""


@dataclass(frozen=True)
class FieldError:
    """An error in one field.

    field: dotted path in the document, such as `batch.global_size`; empty for the whole document. message: what is
    wrong. valid: what would be valid; empty if the message says so already.
    """

    field: str
    message: str
    valid: str = ""

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        hint = f" (valid: {self.valid})" if self.valid else ""
        return f"{where}{self.message}{hint}"

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


class ConfigError(ValueError):
    """Error of a document that cannot be run; `errors` holds one entry for each field at fault."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(str(error) for error in self.errors))


def invalid(field: str, message: str, valid: str = "") -> PydanticCustomError:
    """Return the error that a validator raises for `field` where it checks several fields together.

    field: path relative to the component that raises the error.
    """
    text = cast("LiteralString", message.replace("{", "{{").replace("}", "}}"))
    return PydanticCustomError(CROSS_FIELD, text, {"field": field, "valid": valid})


def parse_document(kind: type[Document], document: Mapping[str, Any] | bytes) -> Document:
    """Parse and validate a document, or its JSON.

    Raises ConfigError, which names every field at fault and what would be valid.
    """
    try:
        return kind.model_validate_json(document) if isinstance(document, bytes) else kind.model_validate(document)
    except ValidationError as error:
        raise ConfigError(translate_errors(error, kind)) from None


def translate_errors(error: ValidationError, document_type: type[BaseModel]) -> list[FieldError]:
    """Translate pydantic's errors about a `document_type` into FieldErrors, one for each field; only the first
    MAX_ERRORS errors."""
    errors: dict[str, FieldError] = {}
    details_of_all = sorted(error.errors(include_url=False), key=_is_consequence)
    for details in details_of_all[:MAX_ERRORS]:
        translated = _translate_error(details, document_type)
        errors.setdefault(translated.field, translated)
    if len(details_of_all) > MAX_ERRORS:
        errors.setdefault("", FieldError("", f"and {format_count(len(details_of_all) - MAX_ERRORS, 'more error')}"))
    return list(errors.values())


def _is_consequence(details: ErrorDetails) -> bool:
    """Whether pydantic expected a word where the input is a whole number.

    In a field that accepts both, the number itself is at fault, and another error says so.
    """
    return details["type"] == "literal_error" and isinstance(details["input"], int)


def _translate_error(details: ErrorDetails, document_type: type[BaseModel]) -> FieldError:
    kind, value = details["type"], details["input"]
    path = _get_document_path(details["loc"], document_type)
    if kind == "extra_forbidden" and path[-1:] != [str(details["loc"][-1])]:
        # A name that nobody has chosen, and that looks like a part of pydantic's own.
        path.append(str(details["loc"][-1]))
    field = ".".join(path)
    context: dict[str, Any] = details.get("ctx", {})
    if kind == CROSS_FIELD:
        field = ".".join([*path, context["field"]] if context["field"] else path)
        return FieldError(field, details["msg"].replace("{{", "{").replace("}}", "}"), context["valid"])
    if kind == "extra_forbidden":
        component = _find_component(document_type, path[:-1])
        fields = {} if component is None else component.model_fields
        siblings = sorted(field.alias or name for name, field in fields.items())
        return FieldError(field, f"unknown field{_suggest(path[-1], siblings)}", ", ".join(siblings))
    if kind == "missing":
        return FieldError(field, "required, but missing")
    if kind == "none_required":
        return FieldError(field, "not available in this version", "null, or leave it out")
    place = _find_field(document_type, path)
    or_null = ", or null" if place and NoneType in get_args(place.annotation) else ""
    if path and path[-1].isdecimal():
        # An entry of a list has its bounds in the field of the list.
        place = _find_field(document_type, path[:-1])
    bounds = describe_bounds(place) if place else ""
    if kind == "literal_error":
        hint = _suggest(value, re.findall("'(.*?)'", context["expected"])) if isinstance(value, str) else ""
        valid = context["expected"] + (f", or {bounds}" if bounds else "") + or_null
        return FieldError(field, f"{shorten_value(value)} is not one of the choices{hint}", valid)
    if kind in ("too_short", "too_long"):
        return FieldError(field, *_describe_length(value, context, or_null))
    # pydantic's own message begins with the kind of value that it checked.
    pydantic_message = re.sub("^(Value error, |(Input|String|List|Dictionary) (?=should))", "", details["msg"])
    message, valid = _MESSAGES.get(kind, (pydantic_message, ""))
    if kind in _OUT_OF_BOUNDS:
        bound = next(iter(context.values()))
        words = message.rpartition(" ")[0]
        message, valid = f"{words} {format_bound(bound)}", bounds + or_null
    if kind == "float_type" and type(value) is int:
        message, valid = "is out of range", bounds + or_null
    if kind == "list_type" and isinstance(value, str):
        valid = f'["{hide_credentials(value)}"]'
    if kind == "model_type" and (component := _find_component(document_type, path)):
        valid = describe_object(component) + or_null
    return FieldError(field, f"{message}, got {shorten_value(value)}", valid)


def _suggest(word: str, choices: Sequence[str]) -> str:
    close = difflib.get_close_matches(word.lower(), choices, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _describe_length(value: Any, context: Mapping[str, Any], or_null: str) -> tuple[str, str]:
    """Return message and valid values for a list or an object with too few entries, or too many."""
    bound = f"at least {context['min_length']:,}" if "min_length" in context else f"at most {context['max_length']:,}"
    entries = "1 entry" if len(value) == 1 else f"{len(value):,} entries"
    return f"has {entries}" if value else "is empty", bound + or_null


def shorten_value(value: object) -> str:
    """Format a value of a document for a message, at most 80 characters of it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    try:
        text = hide_credentials(repr(value))
    except ValueError:
        # Python writes no longer ones.
        return "a whole number of more than 4,300 digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _get_document_path(location: tuple[int | str, ...], document_type: type[BaseModel]) -> list[str]:
    """Return the location without the parts that pydantic adds: the branch of a union, the marker of a key."""
    path: list[str] = []
    node: _Node | None = _Node(document_type)
    for part in location:
        if str(part).startswith("(") and not (node and node.has_keys):
            continue
        if node is None and not isinstance(part, int):
            break
        path.append(str(part))
        node = node and node.find_child(part)
    return path


def _find_field(document_type: type[BaseModel], path: list[str]) -> FieldInfo | None:
    parent = _find_component(document_type, path[:-1]) if path else None
    return parent.model_fields.get(path[-1]) if parent else None


def describe_object(component: type[BaseModel]) -> str:
    """Describe an object by its fields, required ones first, with an example of those that it needs."""
    fields = sorted(component.model_fields.items(), key=lambda item: not item[1].is_required())
    names = [field.alias or name for name, field in fields]
    needed = ", ".join(f"{name} = …" for name, (_, field) in zip(names, fields, strict=True) if field.is_required())
    example = f" such as {{{needed}}}, with the fields" if needed else " with the fields"
    return f"a table{example} {', '.join(names)}{', or {} for its defaults' if _has_defaults(component) else ''}"


def _has_defaults(component: type[BaseModel]) -> bool:
    try:
        return bool(component.model_validate({}))
    except ValidationError:
        return False


def _find_component(document_type: type[BaseModel], path: list[str]) -> type[BaseModel] | None:
    """Return the component at `path`; None if the path leads to a list of components, or out of the document."""
    node: _Node | None = _Node(document_type)
    for part in path:
        node = node and node.find_child(int(part) if part.isdecimal() else part)
    return None if node is None or node.is_container else node.component


@dataclass(frozen=True)
class _Node:
    """Node of a document: a component, or a list or dictionary of components of one type."""

    component: type[BaseModel]
    is_container: bool = False
    has_keys: bool = False
    """Whether it is a dictionary, whose keys may be any text."""

    def find_child(self, part: int | str) -> "_Node | None":
        """Return the node that a field, an index or a key leads to; None for a plain value."""
        if self.is_container:
            return _Node(self.component)
        fields = self.component.model_fields
        field = fields.get(str(part)) or next((field for field in fields.values() if field.alias == part), None)
        if field is None:
            return None
        return _make_node(field.annotation)


def _make_node(annotation: Any) -> _Node | None:
    if isinstance(annotation, type) and not get_args(annotation):
        return _Node(annotation) if issubclass(annotation, BaseModel) else None
    origin = get_origin(annotation)
    for candidate in get_args(annotation):
        node = _make_node(candidate)
        if node:
            return _Node(node.component, origin in (list, dict) or node.is_container, origin is dict or node.has_keys)
    return None


def list_constraints(annotation: Any, metadata: Sequence[Any]) -> Iterator[Any]:
    """List the constraints of a type such as `Annotated[int, Field(ge=1)] | None`."""
    for constraint in metadata:
        yield from constraint.metadata if isinstance(constraint, FieldInfo) else [constraint]
    for argument in get_args(annotation):
        yield from list_constraints(argument, getattr(argument, "__metadata__", ()))


def describe_bounds(field: FieldInfo) -> str:
    """Describe the numbers that are valid in a field, such as `1 to 1,000`; empty without both bounds."""
    constraints = list(list_constraints(field.annotation, field.metadata))
    lows = [f"{format_bound(found.ge)}" for found in constraints if isinstance(found, Ge)]
    lows += [f"above {format_bound(found.gt)}" for found in constraints if isinstance(found, Gt)]
    highs = [f"to {format_bound(found.le)}" for found in constraints if isinstance(found, Le)]
    highs += [f"to less than {format_bound(found.lt)}" for found in constraints if isinstance(found, Lt)]
    return f"{lows[0]} {highs[0]}" if lows and highs else ""


def format_bound(bound: Any) -> str:
    """Format a bound, such as `1,000` or `1e-30`."""
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:,.10g}"
