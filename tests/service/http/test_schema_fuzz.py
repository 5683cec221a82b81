"""Whatever a client sends, the service answers as its OpenAPI document says: schemathesis with all its checks.

DLRM_FUZZ_SEED draws other requests.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.settings import Settings
from tests.service.api import Api, serve_api

SEED = os.environ.get("DLRM_FUZZ_SEED", "1")
SHORT_SECONDS, LONG_SECONDS = 60, 600
"""Seconds of one role; a database is tested with two."""
OVERTIME_SECONDS = 240
CONFIG = """\
[checks.positive_data_acceptance]
# A schema cannot say which files exist, what fits the machine, or in which state a job must be. 429, 503: come again.
expected-statuses = ["2xx", "401", "403", "404", "409", "413", "422", "429", "503"]
"""


@pytest.fixture
def fuzzed_api(settings: Settings) -> Iterator[Api]:
    """Service whose jobs fail at once."""
    with serve_api(
        settings.model_copy(update={"trainer_python": Path("/bin/false")}), runs_control_loop=True
    ) as running:
        yield running


def fuzz(api: Api, role: str, seconds: int, directory: Path) -> None:
    """Send requests with the key of a role for some seconds; all answers must be as the document says."""
    config = directory / "schemathesis.toml"
    config.write_text(CONFIG)
    client = {"admin": api.admin, "submitter": api.submitter}[role]
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config)),
        *("run", f"{api.url}/openapi.json", "--checks", "all", "--max-time", str(seconds), "--continue-on-failure"),
        *(
            "--seed",
            SEED,
            "--generation-database",
            "none",
            "--header",
            f"Authorization: {client.headers['authorization']}",
        ),
        *("--request-timeout", "30", "--suppress-health-check", "all", "--warnings", "off", "--no-color"),
    ]
    ended = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=seconds + OVERTIME_SECONDS
    )
    assert ended.returncode == 0, f"{ended.stdout[-20_000:]}\n{ended.stderr[-2000:]}"
    assert api.anonymous.get("/healthz").status_code == 200
    assert api.services.control.is_alive


@pytest.mark.slow
@pytest.mark.timeout(SHORT_SECONDS + OVERTIME_SECONDS + 60)
@pytest.mark.parametrize("role", ["admin", "submitter"])
def test_a_minute_of_any_requests_is_answered_as_the_document_says(fuzzed_api: Api, role: str, tmp_path: Path) -> None:
    fuzz(fuzzed_api, role, SHORT_SECONDS, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(LONG_SECONDS + OVERTIME_SECONDS + 60)
@pytest.mark.parametrize("role", ["admin", "submitter"])
def test_ten_minutes_of_any_requests_are_answered_as_the_document_says(
    fuzzed_api: Api, role: str, tmp_path: Path
) -> None:
    fuzz(fuzzed_api, role, LONG_SECONDS, tmp_path)
