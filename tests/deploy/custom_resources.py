"""Schemas of the custom resources in the manifests, as far as these use them.

Written by hand after the definitions of Kueue 0.19 and of the Prometheus Operator 0.93: fields that the manifests do
not use are left out, so that a misspelled one is found.
"""

from typing import Any

Schema = dict[str, Any]

_NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_SELECTOR = {"type": "object", "additionalProperties": False, "properties": {"matchLabels": _TEXTS}}
_QUANTITY = {
    "oneOf": [{"type": "integer"}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE])?$"}]
}
_SECONDS = {"type": "string", "pattern": r"^[0-9]+s$"}


def _make_object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {**required, **optional},
    }


def _make_list(item: Schema, max_items: int = 16) -> Schema:
    return {"type": "array", "items": item, "minItems": 1, "maxItems": max_items}


_PREEMPTION = {"enum": ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]}
_FLAVOR = _make_object(
    {"name": _NAME, "resources": _make_list(_make_object({"name": {"type": "string"}, "nominalQuota": _QUANTITY}))}
)
_GROUP = _make_object({"coveredResources": _make_list({"type": "string"}), "flavors": _make_list(_FLAVOR)})

_ALERT = _make_object(
    {"alert": {"type": "string"}, "expr": {"type": "string"}, "labels": _TEXTS, "annotations": _TEXTS},
    **{"for": {"type": "string", "pattern": "^[0-9]+[smh]$"}},
)

SPECS: dict[tuple[str, str], Schema] = {
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"): _make_object({}, nodeLabels=_TEXTS),
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"): _make_object(
        {"resourceGroups": _make_list(_GROUP)},
        namespaceSelector=_SELECTOR,
        preemption=_make_object({}, withinClusterQueue=_PREEMPTION),
    ),
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"): _make_object({"clusterQueue": _NAME}),
    ("monitoring.coreos.com/v1", "PrometheusRule"): _make_object(
        {"groups": _make_list(_make_object({"name": _NAME, "rules": _make_list(_ALERT)}))}
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _make_object(
        {
            "selector": _SELECTOR,
            "endpoints": _make_list(
                _make_object(
                    {"port": {"type": "string"}},
                    path={"type": "string", "pattern": "^/"},
                    interval=_SECONDS,
                    scrapeTimeout=_SECONDS,
                )
            ),
        }
    ),
}
"""Schemas of `spec`, by version and kind."""
CLUSTER_WIDE = {"ResourceFlavor", "ClusterQueue", "ClusterRole", "ClusterRoleBinding", "Namespace"}
"""Kinds that are no part of a namespace."""
