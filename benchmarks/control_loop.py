"""Cost of the control loop while many jobs wait: CPU seconds of a round, and the share of a core at its interval.

python -m benchmarks.control_loop --jobs 5000 [--database postgresql+psycopg://…]
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from service.access.principal import Principal, Role
from service.app import Services, create_services
from service.ids import new_id
from service.jobs.service import Submission
from service.settings import Settings
from service.store.models import Attempt, Job
from service.times import now

USER = Principal("key_0", "bench", "bench", Role.ADMIN)
INTERVAL_SECONDS = 2.0
"""Default interval of the loop."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000, help="number of jobs that wait (default: 5000)")
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds that are measured (default: 20)")
    parser.add_argument("--database", help="SQLAlchemy URL (default: an SQLite file)")
    arguments = parser.parse_args()
    with TemporaryDirectory() as directory:
        services = create_services(make_settings(Path(directory), arguments.database))
        fill_queue(services, arguments.jobs)
        seconds = [measure_round(services) for _ in range(arguments.rounds)]
        services.control.stop()
        services.database.close()
    mean = sum(seconds) / len(seconds)
    sys.stdout.write(
        f"{arguments.jobs:,} waiting jobs: {1e3 * mean:.1f} ms of CPU a round (mean of {len(seconds)}, at one in "
        f"{INTERVAL_SECONDS:g} s), {mean / INTERVAL_SECONDS:.2%} of a core\n"
    )


def make_settings(directory: Path, database_url: str | None) -> Settings:
    (directory / "rows.tsv").write_text("0\t" + "\t".join(["1"] * 39) + "\n")
    return Settings(
        state_directory=directory / "state",
        data_roots=[str(directory)],
        num_cores=4,
        memory_bytes=4 * 2**30,
        num_gpus=0,
        database_url=database_url or f"sqlite:///{directory / 'service.sqlite3'}",
    )


def fill_queue(services: Services, num_jobs: int) -> None:
    """Fill the queue with copies of one job that lacks memory, since another job holds it."""
    document = {
        "data": {"train": ["rows.tsv"]},
        "batch": {"global_size": 64},
        "resources": {"workers_per_node": 1, "memory": "4GiB"},
    }
    first = services.jobs.submit(Submission(document, USER))[0].id
    with services.database.write() as session:
        row = session.get_one(Job, first)
        # It holds its resources, and nobody looks after it: its attempt is of another machine.
        row.state, row.num_attempts = "RUNNING", 1
        session.add(make_attempt_of_another_machine(first))
        names = [column.name for column in Job.__table__.columns if column.name != "id"]
        values = {name: getattr(row, name) for name in names} | {"state": "QUEUED"}
        session.add_all(Job(id=f"{first[:-6]}{number:06}", **values) for number in range(num_jobs))


def make_attempt_of_another_machine(job_id: str) -> Attempt:
    return Attempt(
        id=new_id("att"),
        job_id=job_id,
        number=1,
        state="RUNNING",
        token_hash="",
        started_at=now(),
        node="elsewhere",
    )


def measure_round(services: Services) -> float:
    """Return the CPU seconds of one round, those of all threads of this process. Pauses as the loop does."""
    before = time.process_time()
    services.control.run_once()
    seconds = time.process_time() - before
    time.sleep(INTERVAL_SECONDS)
    return seconds


if __name__ == "__main__":
    main()
