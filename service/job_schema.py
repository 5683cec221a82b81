"""The JSON Schema of job documents, and what their fields mean."""

from functools import cache
from typing import Any

from dlrm.config import JobSpec

MAX_CHARACTERS = 200


@cache
def get_job_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job document, which is made once."""
    return JobSpec.model_json_schema()


def find_meaning(field: str) -> str:
    """Find what a field means, by its dotted path: the first sentence of its description; empty if it has none."""
    schema = get_job_schema()
    nodes: list[dict[str, Any]] = [schema]
    text = ""
    for name in field.split("."):
        found = [node["properties"][name] for node in nodes if name in node.get("properties", {})]
        if not found:
            return ""
        text = next((node["description"] for node in found if "description" in node), "")
        nodes = [resolved for node in found for resolved in _resolve(node, schema["$defs"])]
    sentence = " ".join(text.split()).split(". ")[0].removesuffix(".")
    return sentence if len(sentence) <= MAX_CHARACTERS else sentence[: MAX_CHARACTERS - 1] + "…"


def _resolve(node: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """List the objects that a schema of a field may stand for."""
    if "$ref" in node:
        return _resolve(definitions[node["$ref"].rpartition("/")[2]], definitions)
    parts = [part for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, [])]
    return [resolved for part in parts for resolved in _resolve(part, definitions)] or [node]
