"""Label and field selectors of lists and watches, as far as the launcher uses them: `name=value,name=value`."""

from collections.abc import Callable, Mapping

from tests.kubernetes.fake.objects import labels_of
from tests.kubernetes.fake.resources import Json

Matcher = Callable[[Json], bool]


def make_matcher(query: Mapping[str, str]) -> Matcher:
    """Return whether an object is selected by the query of a list or watch."""
    labels, fields = (_parse(query.get(name, "")) for name in ("labelSelector", "fieldSelector"))
    return lambda thing: (
        labels.items() <= labels_of(thing).items()
        and all(_read_field(thing, path) == value for path, value in fields.items())
    )


def _parse(text: str) -> dict[str, str]:
    parts = [part.partition("=") for part in text.split(",") if part]
    return {name: value for name, _, value in parts}


def _read_field(thing: Json, path: str) -> object:
    found: object = thing
    for member in path.split("."):
        found = found.get(member, "") if isinstance(found, dict) else ""
    return found
