"""The Grafana board and the alert rules: every metric that they name exists, and every alert has a cure in the docs."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.rendering import KUSTOMIZE, ROOT
from tests.service.api import Api
from tests.service.databases import on_sqlite
from tests.service.fixtures import *  # noqa: F403, fixtures

DIRECTORY = KUSTOMIZE / "components" / "monitoring"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
METRIC = re.compile(r"\bdlrm_\w+")
OWN_LABELS = {"le", "job"}
"""Labels that Prometheus adds."""


def read_rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((DIRECTORY / "rules.yaml").read_text())
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def list_expressions() -> Iterator[str]:
    board = json.loads((DIRECTORY / "board.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from (rule["expr"] for rule in read_rules())


@pytest.fixture(scope="module")
def expressions() -> list[str]:
    return list(list_expressions())


@on_sqlite
def test_every_metric_and_label_of_the_board_and_the_alerts_exists(live_api: Api, expressions: list[str]) -> None:
    job = live_api.submit(labels={"behaviour": "crash_once"})
    live_api.wait_for(job["id"], "SUCCEEDED")
    families = list(text_string_to_metric_families(live_api.viewer.get("/metrics").text))
    names = {sample.name for family in families for sample in family.samples}
    # Without a value there is no series of a metric with labels, only its name.
    names |= {f"{family.name}_total" for family in families if family.type == "counter"}
    names |= {
        f"{family.name}{end}" for family in families if family.type == "histogram" for end in ("_bucket", "_count")
    }
    used = {name for expression in expressions for name in METRIC.findall(expression)}
    assert used <= names, used - names
    telemetry = live_api.services.telemetry
    with telemetry.ingest("push", []):
        telemetry.repairs.labels("orphan").inc()
    labels = (
        {
            label
            for family in text_string_to_metric_families(telemetry.render().decode())
            for sample in family.samples
            for label in sample.labels
        }
        | OWN_LABELS
        | {"error"}
    )
    used = {
        label
        for expression in expressions
        for by in re.findall(r"by \(([\w, ]+)\)", expression)
        + [",".join(re.findall(r"(\w+)[!=]~?\"", matchers)) for matchers in re.findall(r"{(.*?)}", expression)]
        for label in re.split(r"[ ,]+", by)
        if label
    }
    assert used <= labels, used - labels


@on_sqlite
def test_every_metric_is_in_the_documentation_and_no_other(live_api: Api) -> None:
    text = live_api.services.telemetry.render().decode()
    families = list(text_string_to_metric_families(text))
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    names = {name for name in names if not name.endswith("_created")}
    documented = set(re.findall(r"^\| `(dlrm_\w+)`", OPERATIONS, re.MULTILINE))
    assert documented == names


def test_every_alert_names_a_symptom_with_its_cure() -> None:
    rules = read_rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/operations.md"
        assert f'<a id="{anchor}"></a>' in OPERATIONS, rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_promtool_takes_the_rules(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: it is part of Prometheus")
    document = yaml.safe_load((DIRECTORY / "rules.yaml").read_text())
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(document["spec"]))
    ended = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
