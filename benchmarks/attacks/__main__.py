"""Attacks on a running service, one after the other: `python -m benchmarks.attacks`.

Starts a real service (SQLite unless `--database-url` names another, empty database) and attacks it over loopback.
Meanwhile another client, in a process of its own, asks for a job and for the health of the service every 20 ms. The
table says what each attack gets, how much the resident memory of the service grows at most, and the longest request of
the other client. Attacks that need few requests repeat them 20 times. Every attack comes from an address of its own, so
that no limit of the one before answers in its place. Before each heavy one the service is started anew: memory that it
had for the one before could be used again. Ends with 1 where an attack takes more than 50 MB, holds a request for more
than a second, or lets one be refused.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.bodies import BODIES
from benchmarks.attacks.connections import CONNECTIONS
from benchmarks.attacks.credentials import CREDENTIALS
from benchmarks.attacks.floods import FLOODS
from benchmarks.attacks.requests import REQUESTS
from benchmarks.attacks.rows import Row, format_table, list_faults, make_row
from benchmarks.attacks.target import HOST, Target
from benchmarks.attacks.watch import MemoryWatch, Probe, probe_until_told
from benchmarks.service_load import kill_jobs

NOTHING = Attack("nothing, for comparison", lambda _: time.sleep(3.0) or "-")
SETTLE_SECONDS = 0.3
"""Quiet time before an attack, and after it, for its last effects to show."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database-url", help="an empty database (default: SQLite in a temporary directory)")
    parser.add_argument("--only", default="", help="part of the names of the attacks to make (default: all)")
    parser.add_argument("--results", type=Path, help="file for the table as JSON; a table in Markdown is put beside it")
    arguments = parser.parse_args()
    _, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    with tempfile.TemporaryDirectory() as directory:
        attacks = [attack for attack in ATTACKS if arguments.only in attack.what]
        rows = attack_all(Target(Path(directory), arguments.database_url), attacks)
    faults = list_faults(rows)
    sys.stdout.write("\n".join([format_table(rows), "", *(faults or ["no attack exceeds a limit"]), ""]))
    if arguments.results:
        table = {
            "database": (arguments.database_url or "sqlite").partition(":")[0],
            "python": platform.python_version(),
            "load_average": os.getloadavg()[1],
            "rows": [asdict(row) for row in rows],
        }
        arguments.results.write_text(json.dumps(table, indent=1) + "\n")
        arguments.results.with_suffix(".md").write_text(format_table(rows) + "\n")
    sys.exit(bool(faults))


def attack_all(target: Target, attacks: Sequence[Attack]) -> list[Row]:
    """Make attacks on a service that is started for them, and return their rows."""
    prober: BaseProcess | None = None
    try:
        target.create()
        pipe, remote = multiprocessing.Pipe()
        prober = multiprocessing.get_context("spawn").Process(
            target=probe_until_told, args=(HOST, target.port, target.keys["victim"], target.victims_job, remote)
        )
        prober.start()
        target.warm_up()
        observed: list[Observed] = []
        for attack in attacks:
            if attack in HEAVY:
                target.kill()
                target.start()
                target.warm_up()
            observed.append(observe(target, attack))
        probes = take_probes(pipe)
    finally:
        target.kill()
        kill_jobs(target.directory)
        if prober is not None:
            prober.kill()
    return [make_row(*seen, probes) for seen in observed]


HEAVY = [*CONNECTIONS, *BODIES, *FLOODS]
"""Attacks that want the memory or the time of the service: each is made on a service just started."""
ATTACKS: Sequence[Attack] = [NOTHING, *CREDENTIALS, *REQUESTS, *HEAVY]
Observed = tuple[str, str, tuple[int, int], tuple[float, float]]
"""Attack, answer, memory of the service and of its children, beginning and end."""


def observe(target: Target, attack: Attack) -> Observed:
    """Make an attack, and return what `make_row` needs to know of it."""
    target.take_new_address()
    time.sleep(SETTLE_SECONDS)
    with MemoryWatch(target.pid) as memory:
        start = time.monotonic()
        answer = attack.run(target)
        time.sleep(SETTLE_SECONDS)
        end = time.monotonic()
    # Requests that began during the attack come to their end.
    time.sleep(SETTLE_SECONDS)
    sys.stderr.write(f"{end - start:5.1f} s  {memory.grown_bytes / 1e6:6.1f} MB  {attack.what}: {answer}\n")
    return attack.what, answer, (memory.grown_bytes, memory.children_bytes), (start, end)


def take_probes(pipe: Connection) -> list[Probe]:
    """End the other client, and return its requests."""
    pipe.send("end")
    return pipe.recv()


if __name__ == "__main__":
    main()
