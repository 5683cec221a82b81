"""A service that is killed again and again, on each kind of database, loses no job, runs none twice and ends all.

DLRM_CHAOS_SEED draws other moments.
"""

import os
import sys
import time
from pathlib import Path

import pytest

from service.launchers.processes import kill_all
from tests.service.api import make_environment, make_settings
from tests.service.chaos.chaos import Chaos
from tests.service.databases import lend_database
from tests.service.service_process import ServiceProcess, find_workers

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

SEED = int(os.environ.get("DLRM_CHAOS_SEED", "1"))
TRAINER = Path(__file__).parent / "trainer.py"
CLOCK_OFFSETS_SECONDS = {"sqlite": [0.0], "postgresql": [-5.0, 0.0, 5.0]}
"""How far the clock of each process of the service is off; on SQLite there is one process."""


def write_trainer(path: Path) -> Path:
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{TRAINER}" "$@"\n')
    path.chmod(0o755)
    return path


def test_services_and_workers_may_be_killed_at_any_moment(
    database_kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    with lend_database(database_kind, tmp_path / "state", request) as url:
        settings = make_settings(tmp_path, url).model_copy(
            update={
                "trainer_python": write_trainer(tmp_path / "python"),
                "num_cores": 8,
                "memory_bytes": 12 * 2**30,
                "reconcile_interval_seconds": 0.3,
                "grace_period_seconds": 5.0,
                "restart_delay_seconds": 0.2,
                "max_restart_delay_seconds": 2.0,
            }
        )
        services = [
            ServiceProcess(tmp_path / f"service-{number}", make_environment(settings), offset)
            for number, offset in enumerate(CLOCK_OFFSETS_SECONDS[database_kind])
        ]
        chaos = Chaos(services, url, settings.runs_directory, SEED)
        began_at = time.monotonic()
        try:
            chaos.run()
        finally:
            for service in services:
                service.kill()
            kill_all(find_workers(settings.runs_directory))
            with capsys.disabled():
                sys.stdout.write("\n" + chaos.describe(database_kind, time.monotonic() - began_at))
    assert not any(chaos.faults.values()), chaos.faults
