"""Meanings of the fields of a job document, in a sentence."""

from functools import cache
from typing import Any

from dlrm.config import JobSpec

MAX_CHARACTERS = 200


def find_meaning(field: str) -> str:
    """Find what a field means, by its dotted path: the first sentence of its description; empty if it has none."""
    schema, definitions = _get_schema()
    nodes: list[dict[str, Any]] = [schema]
    text = ""
    for name in field.split("."):
        found = [node["properties"][name] for node in nodes if name in node.get("properties", {})]
        if not found:
            return ""
        text = next((node["description"] for node in found if "description" in node), "")
        nodes = [resolved for node in found for resolved in _resolve(node, definitions)]
    sentence = " ".join(text.split()).split(". ")[0].removesuffix(".")
    return sentence if len(sentence) <= MAX_CHARACTERS else sentence[: MAX_CHARACTERS - 1] + "…"


@cache
def _get_schema() -> tuple[dict[str, Any], dict[str, Any]]:
    schema = JobSpec.model_json_schema()
    return schema, schema["$defs"]


def _resolve(node: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """List the objects that a schema of a field may stand for."""
    if "$ref" in node:
        return _resolve(definitions[node["$ref"].rpartition("/")[2]], definitions)
    parts = [part for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, [])]
    return [resolved for part in parts for resolved in _resolve(part, definitions)] or [node]
