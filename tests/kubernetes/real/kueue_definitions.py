"""Kinds of Kueue on a real API server, without rules for their content: what plays its controller fills them in."""

from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.resources import KUEUE, Json, Resource
from tests.kubernetes.real.api import RealApi, make_path
from tests.kubernetes.real.cleaning import DEFINITIONS, OWN_LABELS
from tests.patience import wait_until

NOT_SERVED = (404, 429, 503)
"""Statuses of requests for a kind that has just been defined: the server does not know it, or makes its storage."""


def install_kueue(api: RealApi) -> None:
    """Define the kinds of Kueue, and wait until they are served."""
    for resource in KUEUE:
        if api.find(DEFINITIONS, "", resource.qualified_name) is None:
            api.create(DEFINITIONS, "", _define(resource))
    for resource in KUEUE:
        wait_until(lambda resource=resource: _is_served(api, resource))


def is_kueue_foreign(api: RealApi) -> bool:
    """Whether somebody else has installed Kueue."""
    found = [api.find(DEFINITIONS, "", resource.qualified_name) for resource in KUEUE]
    return any(not OWN_LABELS.items() <= (one["metadata"].get("labels") or {}).items() for one in found if one)


def _is_served(api: RealApi, resource: Resource) -> bool:
    try:
        api.connection.request("GET", make_path(resource, api.namespace))
    except ApiError as error:
        if error.code not in NOT_SERVED:
            raise
        return False
    return True


def _define(resource: Resource) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
    }
    scope = "Namespaced" if resource.is_namespaced else "Cluster"
    # Definitions in groups of Kubernetes' own projects have to say who has approved them.
    annotations = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "metadata": {"name": resource.qualified_name, "labels": OWN_LABELS, "annotations": annotations},
        "spec": {"group": resource.group, "names": names, "scope": scope, "versions": [version]},
    }
