"""Removal of what tests have left on a real API server."""

from contextlib import suppress

from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from tests.kubernetes.real.api import RealApi
from tests.patience import wait_until

OWN_LABELS = {"dlrm-tests": "true"}
"""Labels of all that tests create outside their namespaces, and of these."""
SELECTOR = ",".join(f"{name}={value}" for name, value in OWN_LABELS.items())
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
OUTSIDE_NAMESPACES = (VOLUMES, PRIORITY_CLASSES, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)


def empty_namespace(api: RealApi, namespace: str) -> None:
    """Delete a namespace, and wait until its pods are gone, so that they take no room on nodes of the same name."""
    for job in api.list_all(JOBS, namespace):
        with suppress(ApiError):
            api.delete(JOBS, namespace, job["metadata"]["name"], DeleteOptions(propagation_policy="Background"))
    with suppress(ApiError):
        api.delete(NAMESPACES, "", namespace)

    def are_pods_gone() -> bool:
        pods = api.list_all(PODS, namespace)
        for pod in pods:
            with suppress(ApiError):
                api.delete(PODS, namespace, pod["metadata"]["name"], DeleteOptions(grace_period_seconds=0))
        return not pods

    wait_until(are_pods_gone)


def delete_labelled(api: RealApi, resource: Resource) -> bool:
    """Delete all objects of a kind outside namespaces that tests have created. Return whether there was any."""
    found = api.list_all(resource, selector=SELECTOR)
    for one in found:
        with suppress(ApiError):
            api.delete(resource, "", one["metadata"]["name"])
    return bool(found)


def remove_leavings(api: RealApi) -> None:
    """Delete whatever tests have left, also those that were killed."""
    for namespace in api.list_all(NAMESPACES, selector=SELECTOR):
        empty_namespace(api, namespace["metadata"]["name"])
    for resource in (NODES, *OUTSIDE_NAMESPACES, DEFINITIONS):
        wait_until(lambda resource=resource: not delete_labelled(api, resource))
    for lease in api.list_all(LEASES, "kube-node-lease", SELECTOR):
        with suppress(ApiError):
            api.delete(LEASES, "kube-node-lease", lease["metadata"]["name"])
