"""Time from the death of a leader to the next start of a job: `python -m benchmarks.failover --database-url URL`.

Starts three processes of a service on one empty PostgreSQL database. Then, again and again: a job is queued and held,
the process that leads is killed, the job is released through another one at that moment, and the time until it has left
the queue is taken. The killed process is started again before the next round. Jobs run `sleep`.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
from sqlalchemy import create_engine, text

from benchmarks.service_load import kill_jobs, make_service, say, wait_for
from tests.service.service_process import ServiceProcess

NUM_OTHERS = 2
POLL_SECONDS = 0.02
DOCUMENT = {"data": {"train": ["day_0.tsv"]}, "batch": {"global_size": 64}, "resources": {"workers_per_node": 1}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database-url", required=True, help="SQLAlchemy URL of an empty PostgreSQL database")
    parser.add_argument("--rounds", type=int, default=10, help="leaders that are killed (default: 10)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        first = make_service(directory, arguments.database_url)
        others = [ServiceProcess(directory / f"other-{number}", first.environment) for number in range(NUM_OTHERS)]
        services = [first, *others]
        try:
            with ExitStack() as stack:
                for service in services:
                    stack.enter_context(service)
                headers = {"Authorization": f"Bearer {first.admin_key}"}
                seconds = [measure_failover(services, headers, arguments.database_url) for _ in range(arguments.rounds)]
        finally:
            kill_jobs(directory)
    times = ", ".join(f"{value:.2f}" for value in sorted(seconds))
    say(f"leader killed to next start: median {statistics.median(seconds):.2f} s, all {times}")


def measure_failover(services: list[ServiceProcess], headers: dict[str, str], database_url: str) -> float:
    """Kill the leader, and return the seconds until a job starts that is released at that moment."""
    leader = find_leader(services, database_url)
    other = next(service for service in services if service is not leader)
    with httpx.Client(base_url=other.url, headers=headers, timeout=30.0) as client:
        job = client.post("/v1/jobs", json={**DOCUMENT, "name": "failover"}).raise_for_status().json()["id"]
        client.post(f"/v1/jobs/{job}/hold").raise_for_status()
        leader.kill()
        killed_at = time.monotonic()
        client.post(f"/v1/jobs/{job}/release").raise_for_status()
        while client.get(f"/v1/jobs/{job}").raise_for_status().json()["state"] == "QUEUED":
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - killed_at
    leader.start()
    leader.wait_until_ready()
    return seconds


def find_leader(services: list[ServiceProcess], database_url: str) -> ServiceProcess:
    """Find the leading process, by the name that it has left in the database."""
    engine = create_engine(database_url)
    found: list[ServiceProcess] = []

    def look() -> bool:
        with engine.connect() as connection:
            owner = str(connection.execute(text("SELECT owner FROM leadership")).scalar_one())
        found[:] = [service for service in services if str(service.pid) in owner]
        return bool(found)

    wait_for(look)
    engine.dispose()
    return found[0]


if __name__ == "__main__":
    main()
