"""Schemas of the newest Kubernetes, which the package `kubernetes_validate` carries."""

import functools
import json
from pathlib import Path
from typing import Any

import kubernetes_validate
from jsonschema_rs import Draft202012Validator, Registry

from tests.kubernetes.fake.resources import Json, Resource

_ROOT = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
_FOLDER = _ROOT / f"v{kubernetes_validate.latest_version()}-local-strict"


@functools.cache
def definitions() -> Json:
    """Return all types by their full name."""
    return json.loads((_FOLDER / "_definitions.json").read_text())["$defs"]


@functools.cache
def _registry() -> Any:
    document = json.loads((_FOLDER / "_definitions.json").read_text())
    return Registry([("https://kubernetes.io/api/_definitions.json", document)])


def schema_of(api_version: str, kind: str) -> Json | None:
    """Return the schema of a kind, None for a custom resource."""
    path = _FOLDER / _file_name(api_version, kind)
    return json.loads(path.read_text()) if path.exists() else None


@functools.cache
def validator_of(api_version: str, kind: str) -> Draft202012Validator | None:
    """Return the validator of a kind, None for a custom resource."""
    schema = schema_of(api_version, kind)
    return Draft202012Validator(schema, registry=_registry()) if schema else None


def _file_name(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    short_group = group.partition(".")[0]
    return f"{kind.lower()}-{short_group}-{version}.json" if group else f"{kind.lower()}-{version}.json"


def resolve(schema: Json) -> Json:
    """Return what a schema refers to, with its own remarks on lists kept."""
    if "$ref" not in schema:
        return schema
    return definitions()[schema["$ref"].rpartition("/")[2]]


@functools.cache
def _root_schema(resource: Resource) -> Json:
    return schema_of(resource.api_version, resource.kind) or {"properties": {"metadata": _METADATA}}


_METADATA = {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}


def root_schema(resource: Resource) -> Json:
    """Return the schema that a patch of a resource starts from."""
    return _root_schema(resource)
