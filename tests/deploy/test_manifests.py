"""The manifests of deploy/kustomize: they render, every object is valid, and what they name exists."""

import re
import shutil
import tomllib
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from service.settings import OTHER_VARIABLES, PREFIX, Settings
from tests.deploy.custom_resources import CLUSTER_WIDE, SPECS
from tests.deploy.pod_security import list_containers
from tests.deploy.rendering import DIRECTORIES, KUSTOMIZE, OVERLAYS, find_objects, find_pod_templates, render

ADDED = ("prepared-claim",)
"""Components that no overlay has: whoever wants one adds it to a copy."""
VERSIONS = ("1.31", kubernetes_validate.latest_version())


@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0], marks=pytest.mark.slow), *VERSIONS[1:]])
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_object_is_valid(directory: str, version: str) -> None:
    objects = render(directory)
    assert objects
    for found in objects:
        if schema := SPECS.get((found["apiVersion"], found["kind"])):
            assert set(found) <= {"apiVersion", "kind", "metadata", "spec"}
            jsonschema.validate(found.get("spec", {}), schema)
        else:
            kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("kind", sorted({kind for _, kind in SPECS}))
def test_a_misspelled_field_of_a_custom_resource_is_found(kind: str) -> None:
    objects = [found for directory in DIRECTORIES for found in render(directory) if found["kind"] == kind]
    assert objects
    (schema,) = (schema for (_, name), schema in SPECS.items() if name == kind)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**objects[0].get("spec", {}), "misspelled": 1}, schema)


@pytest.mark.parametrize("directory", ["overlays/local", "overlays/production", "examples/kueue"])
def test_every_object_is_in_the_namespace_unless_it_is_of_the_whole_cluster(directory: str) -> None:
    for found in render(directory):
        expected = None if found["kind"] in CLUSTER_WIDE else "dlrm"
        assert found["metadata"].get("namespace") == expected, found["kind"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_copy_of_an_overlay_may_have_another_namespace_and_image(name: str, tmp_path: Path) -> None:
    render(f"overlays/{name}")
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    copied = tmp_path / "kustomize" / "overlays" / "ads"
    (tmp_path / "kustomize" / "overlays" / name).rename(copied)
    path = copied / "kustomization.yaml"
    text = re.sub(r"newTag: .*", "newTag: 9.9.9", path.read_text().replace("namespace: dlrm", "namespace: ads"))
    path.write_text(text)
    objects = render(str(copied))
    namespaces = {found["metadata"].get("namespace") for found in objects}
    subjects = [subject for found in objects for subject in found.get("subjects", [])]
    assert namespaces == {"ads", None}
    assert {subject["namespace"] for subject in subjects} == {"ads"}
    assert set(find_objects(objects, "Namespace")) == {"ads"}
    (deployment,) = find_objects(objects, "Deployment").values()
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image.endswith(":9.9.9")
    assert read_launcher_settings(objects)["image"] == image


def test_a_copy_of_an_overlay_may_have_another_image_for_workers(tmp_path: Path) -> None:
    render("overlays/production")
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    directory = tmp_path / "kustomize" / "overlays" / "production"
    (directory / "kustomization.yaml").write_text(
        re.sub(
            r"(?s)(replacements:\n)  # The workers run.*?(  # The only)",
            r"\1\2",
            (directory / "kustomization.yaml").read_text(),
        )
    )
    path, image = directory / "replicas.yaml", "registry.example.com/dlrm:0.1.0-cuda"
    variable = f"            - name: DLRM_KUBERNETES_IMAGE\n              value: {image}\n"
    path.write_text(path.read_text().replace("env:\n", f"env:\n{variable}"))
    objects = render(str(directory))
    assert read_launcher_settings(objects)["image"] == image
    (deployment,) = find_objects(objects, "Deployment").values()
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].endswith("-cpu")


def test_installations_in_two_namespaces_share_no_object(tmp_path: Path) -> None:
    render("overlays/local")
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    found: list[set[tuple[str, str | None, str]]] = []
    for namespace in ("ads", "shop"):
        copied = tmp_path / "kustomize" / "overlays" / namespace
        shutil.copytree(KUSTOMIZE / "overlays" / "local", copied)
        path = copied / "kustomization.yaml"
        path.write_text(path.read_text().replace("namespace: dlrm", f"namespace: {namespace}"))
        objects = render(str(copied))
        names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
        found.append(set(names))
        (binding,) = find_objects(objects, "ClusterRoleBinding").values()
        assert binding["roleRef"]["name"] in find_objects(objects, "ClusterRole")
        assert ("ClusterRoleBinding", None, f"dlrm-node-capacity.{namespace}") in names
    assert not found[0] & found[1]


def test_every_component_is_in_an_overlay_or_may_be_added_to_one() -> None:
    named = {
        (KUSTOMIZE / "overlays" / name / component).resolve()
        for name in OVERLAYS
        for component in yaml.safe_load((KUSTOMIZE / "overlays" / name / "kustomization.yaml").read_text())[
            "components"
        ]
    }
    assert named | {KUSTOMIZE / "components" / name for name in ADDED} == set((KUSTOMIZE / "components").iterdir())


def test_a_copy_of_an_overlay_may_have_a_volume_for_prepared_rows(tmp_path: Path) -> None:
    render("overlays/production")
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    path = tmp_path / "kustomize" / "overlays" / "production" / "kustomization.yaml"
    added = "".join(f"  - ../../components/{name}\n" for name in ADDED)
    path.write_text(path.read_text().replace("components:\n", f"components:\n{added}"))
    (claim,) = find_objects(render(str(path.parent)), "PersistentVolumeClaim").values()
    kubernetes_validate.validate(claim, VERSIONS[-1], strict=True)
    assert claim["metadata"] | {"labels": {}} == {"name": "dlrm-prepared", "namespace": "dlrm", "labels": {}}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    named = (KUSTOMIZE / "components" / "prepared-claim" / "kustomization.yaml").read_text()
    assert 'prepared_claim = "dlrm-prepared"' in named


@pytest.mark.parametrize("name", OVERLAYS)
def test_what_a_pod_mounts_exists(name: str) -> None:
    objects = render(f"overlays/{name}")
    claims, maps = find_objects(objects, "PersistentVolumeClaim"), find_objects(objects, "ConfigMap")
    accounts = find_objects(objects, "ServiceAccount")
    for template in find_pod_templates(objects):
        assert template["spec"]["serviceAccountName"] in accounts
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        for volume in volumes.values():
            assert volume.get("persistentVolumeClaim", {}).get("claimName") in {None, *claims}
            assert volume.get("configMap", {}).get("name") in {None, *maps}
        for container in list_containers(template["spec"]):
            assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_setting_in_the_manifests_is_one_of_the_service(name: str) -> None:
    known = {f"{PREFIX}{field.upper()}" for field in Settings.model_fields}
    named = {
        variable["name"]
        for template in find_pod_templates(render(f"overlays/{name}"))
        for container in list_containers(template["spec"])
        for variable in container.get("env", [])
        if variable["name"].startswith(PREFIX)
    }
    assert named >= {"DLRM_HOST", "DLRM_LAUNCHERS"}
    assert named <= known


def test_every_setting_in_the_image_and_in_its_documents_is_one_of_the_service() -> None:
    root = KUSTOMIZE.parents[1]
    known = {f"{PREFIX}{field.upper()}" for field in Settings.model_fields} | OTHER_VARIABLES
    for name in ("deploy/Containerfile", "deploy/README.md"):
        named = set(re.findall(r"\bDLRM_[A-Z_]+", (root / name).read_text()))
        assert named <= known, name


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_settings_of_the_launcher_name_what_exists(name: str) -> None:
    objects = render(f"overlays/{name}")
    settings = read_launcher_settings(objects)
    (deployment,) = find_objects(objects, "Deployment").values()
    assert settings["image"] == deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert settings["worker_service_account"] in find_objects(objects, "ServiceAccount")
    assert settings.get("runs_claim") in {None, *find_objects(objects, "PersistentVolumeClaim")}
    assert settings.get("queue_name") in {None, *find_objects(objects, "LocalQueue")}
    match = re.fullmatch(r"http://([a-z-]+):(\d+)", settings["ingest_url"])
    assert match is not None
    service = find_objects(objects, "Service")[match[1]]
    assert service["spec"]["ports"][0]["port"] == int(match[2])


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_settings_of_the_launcher_are_those_that_it_reads(name: str) -> None:
    options = pytest.importorskip("service.launchers.kubernetes.options", reason="the launcher is not there yet")
    options.KubernetesOptions.model_validate(read_launcher_settings(render(f"overlays/{name}")))


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_service_finds_its_pods(name: str) -> None:
    objects = render(f"overlays/{name}")
    (service,) = find_objects(objects, "Service").values()
    (deployment,) = find_objects(objects, "Deployment").values()
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    monitoring_port = int(variables["DLRM_MONITORING_PORT"] or "")
    assert ports == {"http": Settings.model_fields["port"].default, "monitoring": monitoring_port}
    assert [port["targetPort"] for port in service["spec"]["ports"]] == list(ports)


def test_prometheus_is_let_in_to_the_port_for_monitoring_alone() -> None:
    objects = render("overlays/production")
    policy = next(found for name, found in find_objects(objects, "NetworkPolicy").items() if name == "metrics")
    (monitor,) = find_objects(objects, "ServiceMonitor").values()
    (service,) = find_objects(objects, "Service").values()
    (endpoint,) = monitor["spec"]["endpoints"]
    port = next(port["port"] for port in service["spec"]["ports"] if port["name"] == endpoint["port"])
    assert endpoint["port"] == "monitoring"
    assert [allowed["port"] for rule in policy["spec"]["ingress"] for allowed in rule["ports"]] == [port]


def test_the_namespace_refuses_pods_with_more_rights() -> None:
    (namespace,) = find_objects(render("base"), "Namespace").values()
    labels = namespace["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")} == {"restricted"}


def test_no_secret_is_in_the_manifests() -> None:
    assert not [found for name in OVERLAYS for found in render(f"overlays/{name}") if found["kind"] == "Secret"]


def test_the_local_overlay_has_one_replica_with_its_database_on_a_volume() -> None:
    (deployment,) = find_objects(render("overlays/local"), "Deployment").values()
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    volumes = {volume["name"]: volume for volume in deployment["spec"]["template"]["spec"]["volumes"]}
    assert volumes["state"] == {"name": "state", "persistentVolumeClaim": {"claimName": "dlrm-state"}}


def test_the_production_overlay_has_replicas_that_a_drained_node_does_not_end_at_once() -> None:
    objects = render("overlays/production")
    (deployment,) = find_objects(objects, "Deployment").values()
    (budget,) = find_objects(objects, "PodDisruptionBudget").values()
    spec, template = deployment["spec"], deployment["spec"]["template"]
    assert spec["replicas"] >= 2
    assert 0 < budget["spec"]["minAvailable"] < spec["replicas"]
    selectors = [budget["spec"]["selector"]]
    selectors += [spread["labelSelector"] for spread in template["spec"]["topologySpreadConstraints"]]
    for selector in selectors:
        assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
    (variable,) = (
        variable for variable in template["spec"]["containers"][0]["env"] if variable["name"] == "DLRM_DATABASE_URL"
    )
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "dlrm-database", "key": "url"}}


@pytest.mark.parametrize("path", ["docs/kubernetes.md", "docs/clusters.md", "deploy/README.md"])
def test_the_files_that_documents_name_exist(path: str) -> None:
    root = KUSTOMIZE.parents[1]
    named = set(re.findall(r"\bdeploy/[A-Za-z/_.-]*[A-Za-z]", (root / path).read_text()))
    # A copy that its reader makes.
    assert not [name for name in named - {"deploy/kustomize/overlays/ads"} if not (root / name).exists()]


def test_the_production_overlay_trusts_its_ingress_controller() -> None:
    (deployment,) = find_objects(render("overlays/production"), "Deployment").values()
    variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    (value,) = (variable["value"] for variable in variables if variable["name"] == "DLRM_TRUSTED_PROXIES")
    networks = Settings.model_validate({"trusted_proxies": value}).trusted_proxies
    assert any(ip_address("10.244.1.7") in ip_network(network) for network in networks.split(","))


def test_the_kueue_example_admits_jobs_of_the_namespace() -> None:
    queues = find_objects(render("examples/kueue"), "ClusterQueue")
    for queue in find_objects(render("overlays/production"), "LocalQueue").values():
        selector = queues[queue["spec"]["clusterQueue"]]["spec"]["namespaceSelector"]
        assert selector["matchLabels"]["kubernetes.io/metadata.name"] == queue["metadata"]["namespace"]
    flavors = set(find_objects(render("examples/kueue"), "ResourceFlavor"))
    for group in find_groups(queues.values()):
        for flavor in group["flavors"]:
            assert flavor["name"] in flavors
            assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]


def find_groups(queues: Any) -> Iterator[dict[str, Any]]:
    for queue in queues:
        yield from queue["spec"]["resourceGroups"]


def read_launcher_settings(objects: list[dict[str, Any]]) -> dict[str, Any]:
    maps = find_objects(objects, "ConfigMap")
    (settings,) = (found for name, found in maps.items() if name.startswith("dlrm-kubernetes"))
    (deployment,) = find_objects(objects, "Deployment").values()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    settings = tomllib.loads(settings["data"][Path(variables["DLRM_KUBERNETES"]).name])
    return {**settings, "image": variables["DLRM_KUBERNETES_IMAGE"]}
