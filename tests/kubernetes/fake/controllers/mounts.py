"""Secrets, ConfigMaps and claims that a pod refers to."""

from collections.abc import Iterator

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.resources import CONFIG_MAPS, PODS, SECRETS, VOLUME_CLAIMS, Json, Resource


def find_volume_trouble(api: Api, pod: Json) -> tuple[str, str] | None:
    """Return reason and message of the event about a volume that cannot be mounted."""
    namespace: str = pod["metadata"]["namespace"]
    for volume in pod["spec"].get("volumes") or []:
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            if others := _find_other_nodes(api, pod, claim):
                text = f'Multi-Attach error for volume "{claim}" Volume is already used by pod(s) {", ".join(others)}'
                return "FailedAttachVolume", text
            continue
        for resource, source in _volume_sources(volume):
            name: str = source.get("secretName") or source.get("name") or ""
            found = api.find(resource, namespace, name)
            if found is None and not source.get("optional"):
                return _failed_mount(volume, f'{resource.plural[:-1]} "{name}" not found')
            for item in source.get("items") or []:
                if found is not None and item["key"] not in (found.get("data") or {}):
                    return _failed_mount(volume, f"references non-existent {resource.plural[:-1]} key: {item['key']}")
    return None


def _failed_mount(volume: Json, why: str) -> tuple[str, str]:
    return "FailedMount", f'MountVolume.SetUp failed for volume "{volume["name"]}" : {why}'


def _find_other_nodes(api: Api, pod: Json, claim: str) -> list[str]:
    """Return the pods on other nodes that hold a claim which only one node at a time can mount."""
    namespace: str = pod["metadata"]["namespace"]
    found = api.find(VOLUME_CLAIMS, namespace, claim)
    if found is None or (found["spec"].get("accessModes") or []) != ["ReadWriteOnce"]:
        return []
    return [
        other["metadata"]["name"]
        for other in api.list_all(PODS, namespace)
        if other["spec"].get("nodeName") not in (None, pod["spec"]["nodeName"])
        and other["status"].get("phase") == "Running"
        and any(
            (one.get("persistentVolumeClaim") or {}).get("claimName") == claim
            for one in other["spec"].get("volumes") or []
        )
    ]


def _volume_sources(volume: Json) -> Iterator[tuple[Resource, Json]]:
    sources = [volume, *((volume.get("projected") or {}).get("sources") or [])]
    for source in sources:
        if "secret" in source:
            yield SECRETS, source["secret"]
        if "configMap" in source:
            yield CONFIG_MAPS, source["configMap"]


def find_missing_reference(api: Api, pod: Json) -> str:
    """Return why the environment of a container cannot be made, "" where it can."""
    namespace: str = pod["metadata"]["namespace"]
    for container in pod["spec"]["containers"]:
        for resource, reference, key in _references(container):
            if reference.get("optional"):
                continue
            found = api.find(resource, namespace, reference["name"])
            if found is None:
                return f'{resource.plural[:-1]} "{reference["name"]}" not found'
            if key and key not in (found.get("data") or {}):
                kind = "Secret" if resource == SECRETS else "ConfigMap"
                return f"couldn't find key {key} in {kind} {namespace}/{reference['name']}"
    return ""


def _references(container: Json) -> Iterator[tuple[Resource, Json, str]]:
    for source in container.get("envFrom") or []:
        if "secretRef" in source:
            yield SECRETS, source["secretRef"], ""
        if "configMapRef" in source:
            yield CONFIG_MAPS, source["configMapRef"], ""
    for variable in container.get("env") or []:
        source = variable.get("valueFrom") or {}
        if "secretKeyRef" in source:
            yield SECRETS, source["secretKeyRef"], source["secretKeyRef"]["key"]
        if "configMapKeyRef" in source:
            yield CONFIG_MAPS, source["configMapKeyRef"], source["configMapKeyRef"]["key"]
