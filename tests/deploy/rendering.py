"""Rendering of the directories of deploy/kustomize by the kustomize that this machine has."""

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
KUSTOMIZE = ROOT / "deploy" / "kustomize"
OVERLAYS = ("local", "production")
DIRECTORIES = ("base", *(f"overlays/{name}" for name in OVERLAYS), "examples/kueue")
LEAST_VERSION = (5, 0)
"""Version of kustomize from which on it does all that the files ask for; kubectl 1.27 has it."""

Object = dict[str, Any]


@functools.cache
def render(directory: str) -> list[Object]:
    """Render a directory of deploy/kustomize. Skips the test where no kustomize is new enough."""
    command = _find_command()
    if isinstance(command, str):
        pytest.skip(command)
    ended = subprocess.run([*command, KUSTOMIZE / directory], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "deprecated" not in ended.stderr.lower()
    return [found for found in yaml.safe_load_all(ended.stdout) if found]


def find_objects(objects: list[Object], kind: str) -> dict[str, Object]:
    return {found["metadata"]["name"]: found for found in objects if found["kind"] == kind}


def find_pod_templates(objects: list[Object]) -> list[Object]:
    """List the pod templates in Deployments, Jobs and the like."""
    templates = [found["spec"]["template"] for found in objects if "template" in (found.get("spec") or {})]
    pods = [found for found in objects if found["kind"] == "Pod"]
    return [*templates, *pods]


@functools.cache
def _find_command() -> list[str] | str:
    """Return the command that renders, without the directory, or why there is none."""
    for program, version, build in (
        ("kustomize", ["version"], ["build"]),
        ("kubectl", ["version", "--client"], ["kustomize"]),
    ):
        if shutil.which(program) is None:
            continue
        said = subprocess.run([program, *version], capture_output=True, text=True, check=False).stdout
        found = re.search(r"(?:Kustomize Version: |^)v(\d+)\.(\d+)", said, re.MULTILINE)
        if found and (int(found[1]), int(found[2])) >= LEAST_VERSION:
            return [program, *build]
    return "no kustomize 5 is installed: kubectl 1.27 or later has it"
