"""Names of objects of Kubernetes, in job documents and in the settings of the launcher."""

import pytest
from pydantic import TypeAdapter, ValidationError

from dlrm.config.resources import DnsLabel, DnsName, KubernetesConfig
from service.launchers.kubernetes.options import KubernetesOptions

LEAST = {"image": "dlrm:1", "ingest_url": "http://dlrm:8080", "run_store": "s3://bucket/runs"}
LONG = ".".join(["a" * 63] * 3 + ["a" * 61])
"""Longest name with dots: 253 characters."""
VALID = ["a", "0", "a-b", "a" * 63, "a.b", "1.2-3", LONG]
INVALID = ["", "A", "queue_1", "-a", "a-", "a.", ".a", "a..b", "a.-b", "a-.b", "a b", "a\n", "ä", "a" * 64, f"{LONG}a"]


@pytest.mark.parametrize("name", VALID)
def test_a_name_may_be_as_kubernetes_takes_it(name: str) -> None:
    assert TypeAdapter(DnsName).validate_python(name) == name
    assert KubernetesConfig(queue_name=name, priority_class=name).queue_name == name
    assert KubernetesOptions.model_validate(LEAST | {"queue_name": name}).queue_name == name


@pytest.mark.parametrize("name", INVALID)
@pytest.mark.parametrize("field", ["queue_name", "priority_class"])
def test_a_name_that_kubernetes_refuses_is_refused_before(field: str, name: str) -> None:
    with pytest.raises(ValidationError):
        KubernetesConfig.model_validate({field: name})
    with pytest.raises(ValidationError):
        KubernetesOptions.model_validate(LEAST | {field: name})


@pytest.mark.parametrize(("name", "is_valid"), [("a-b", True), ("a" * 63, True), ("a.b", False), ("a" * 64, False)])
def test_a_namespace_is_a_part_of_host_names_and_has_no_dots(name: str, *, is_valid: bool) -> None:
    if is_valid:
        assert TypeAdapter(DnsLabel).validate_python(name) == name
        assert KubernetesOptions.model_validate(LEAST | {"namespace": name}).namespace == name
    else:
        with pytest.raises(ValidationError):
            KubernetesOptions.model_validate(LEAST | {"namespace": name})
