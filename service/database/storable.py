"""Values that every database stores: PostgreSQL refuses some that SQLite takes, and neither takes half a character."""

import json
from typing import Any, cast

from dlrm.record import replace_non_finite


def make_storable(text: str) -> str:
    """Replace NUL, and halves of characters, which come from names of files."""
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def dump_json(value: Any) -> str:
    """Format a value as JSON that can be stored: a number that is not finite becomes null."""
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(replace_non_finite(value), allow_nan=False)
    # Both are also written for what can be stored; that stays as it is.
    return json.dumps(_make_texts_storable(json.loads(text))) if "\\u0000" in text or "\\ud" in text else text


def _make_texts_storable(value: Any) -> Any:
    if isinstance(value, str):
        return make_storable(value)
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {make_storable(name): _make_texts_storable(item) for name, item in items}
    if isinstance(value, list):
        return [_make_texts_storable(item) for item in cast("list[Any]", value)]
    return value
