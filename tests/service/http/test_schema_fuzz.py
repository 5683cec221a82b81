"""Whatever a client sends, the service answers as its OpenAPI document says: schemathesis with all its checks.

DLRM_FUZZ_SEED draws other requests.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.demo.service_process import run_service
from service.client import Client
from tests.service.databases import lend_database

SEED = os.environ.get("DLRM_FUZZ_SEED", "1")
SHORT_SECONDS, LONG_SECONDS = 60, 600
"""Seconds of one role; a database is tested with two."""
OVERTIME_SECONDS = 240
SETTINGS = {
    "DLRM_RECONCILE_INTERVAL_SECONDS": "0.5",
    # An answer 429 would say nothing of the request.
    "DLRM_REQUESTS_PER_SECOND": "1e6",
    "DLRM_REQUESTS_PER_SECOND_PER_ADDRESS": "1e6",
    "DLRM_PUSHES_PER_SECOND": "1e6",
    "DLRM_FAILURES_PER_MINUTE": "1e6",
}
CONFIG = """\
[checks.positive_data_acceptance]
# A schema cannot say which files exist, what fits the machine, or in which state a job must be. 429, 503: come again.
expected-statuses = ["2xx", "401", "403", "404", "409", "413", "422", "429", "503"]
[checks.negative_data_rejection]
# A request may be too long, or come too soon, before anybody looks at what is wrong with it.
expected-statuses = ["400", "401", "403", "404", "405", "406", "411", "413", "414", "415", "422", "429", "431", "503"]
"""
MAX_LINE = 300
"""Characters that are shown of a line of the report; a request may be as long as a body may be."""


@pytest.fixture
def client(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Client, with an admin key, of a service that plans jobs, and whose jobs fail at once."""
    directory, trainer = tmp_path / "state", tmp_path / "python"
    directory.mkdir()
    trainer.write_text(f'#!/bin/sh\ncase "$*" in *dlrm.programs.plan*) exec "{sys.executable}" "$@" ;; esac\nexit 1\n')
    trainer.chmod(0o755)
    settings = {**SETTINGS, "DLRM_TRAINER_PYTHON": str(trainer)}
    with (
        lend_database(database_kind, directory, request) as url,
        run_service(directory, {**settings, "DLRM_DATABASE_URL": url}) as client,
    ):
        yield client


def fuzz(client: Client, role: str, seconds: int, directory: Path) -> None:
    """Send requests with a key of a role for some seconds; all answers must be as the document says."""
    key = client.create_key("fuzz", "admin" if role == "admin" else "submitter").key
    config, output = directory / "schemathesis.toml", directory / "output"
    config.write_text(CONFIG)
    command = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config)]
    command += ["run", f"{client.url}/openapi.json", "--header", f"Authorization: Bearer {key}"]
    # A stream goes on for as long as its client reads.
    command += ["--exclude-path-regex", "/stream$"]
    command += ["--checks", "all", "--continue-on-failure", "--max-time", str(seconds), "--seed", SEED]
    command += ["--generation-database", "none", "--suppress-health-check", "all", "--request-timeout", "30"]
    command += ["--warnings", "off", "--no-color"]
    with output.open("wb") as file:
        ended = subprocess.run(
            command, cwd=directory, stdout=file, stderr=file, check=False, timeout=seconds + OVERTIME_SECONDS
        )
    assert ended.returncode == 0, shorten(output.read_text())
    assert httpx.get(f"{client.url}/readyz").status_code == 200
    assert "Traceback" not in (directory / "state/service.log").read_text()


def shorten(report: str) -> str:
    return "\n".join(line[:MAX_LINE] for line in report.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(SHORT_SECONDS + OVERTIME_SECONDS + 60)
@pytest.mark.parametrize("role", ["admin", "submitter"])
def test_a_minute_of_any_requests_is_answered_as_the_document_says(client: Client, role: str, tmp_path: Path) -> None:
    fuzz(client, role, SHORT_SECONDS, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(LONG_SECONDS + OVERTIME_SECONDS + 60)
@pytest.mark.parametrize("role", ["admin", "submitter"])
def test_ten_minutes_of_any_requests_are_answered_as_the_document_says(
    client: Client, role: str, tmp_path: Path
) -> None:
    fuzz(client, role, LONG_SECONDS, tmp_path)
