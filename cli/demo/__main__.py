"""Command line of the demo: `python -m cli.demo [--data FILE]`."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from cli.commands.submit import follow_to_end
from cli.demo.job import find_failure, make_criteo_job, make_synthetic_job, print_last_log_lines, print_result
from cli.demo.service_process import run_service
from cli.local.console import console_on, print_line
from cli.local.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommandError
from cli.local.trainer import require_trainer
from cli.render.job_tables import make_derived_table
from hostinfo.fast_exit import skip_last_collection
from hostinfo.limits import count_cores
from service.client import Client, JobDetails, ServiceError, ServiceUnreachableError

GRACE_PERIOD_SECONDS = 10
CANCEL_TIMEOUT_SECONDS = 3 * GRACE_PERIOD_SECONDS
POLL_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cli.demo", description="Train a model through the service.")
    parser.add_argument("--data", type=Path, help="a Criteo TSV file, plain or gzip, instead of synthetic rows")
    parser.add_argument("--num-rows", type=int, help="number of synthetic rows instead of 1,000,000")
    parser.add_argument("--state-directory", type=Path, default=Path(".dlrm/demo"))
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = console_on()
    try:
        require_trainer()
        document = make_criteo_job(options.data) if options.data else make_synthetic_job(options.num_rows)
        data_root = options.data.resolve().parent if options.data else None
        return _run(console, document, options.state_directory.resolve(), data_root)
    except CommandError as error:
        for line in error.lines:
            print_line(console, line)
        return error.exit_code
    except (ServiceError, ServiceUnreachableError) as error:
        print_line(console, f"{error}; the service's log: {options.state_directory / 'service.log'}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        console.print("interrupted; the job and the service are stopped")
        return EXIT_INTERRUPTED


def _run(console: Console, document: dict[str, Any], state_directory: Path, data_root: Path | None) -> int:
    num_workers = document["resources"]["workers_per_node"]
    settings = {
        # With fewer cores than workers the job would be refused; it can train all the same, only more slowly.
        "DLRM_NUM_CORES": str(max(num_workers, count_cores())),
        "DLRM_GRACE_PERIOD_SECONDS": str(GRACE_PERIOD_SECONDS),
    }
    if data_root:
        settings["DLRM_DATA_ROOTS"] = str(data_root)
    console.print("starting a service on loopback")
    with run_service(state_directory, settings) as client:
        submitted = client.submit(document)
        print_line(console, f"submitted {submitted.id} to {client.url}")
        try:
            console.print(make_derived_table(client.job(submitted.id).derived))
            job = follow_to_end(client, submitted.id)
        except BaseException:
            _cancel(client, submitted.id)
            raise
        return _report(console, client, job, state_directory)


def _report(console: Console, client: Client, job: JobDetails, state_directory: Path) -> int:
    failure = find_failure(job)
    if failure:
        print_line(console, f"FAILED: {failure}", "bold red")
        print_last_log_lines(console, client, job)
        return EXIT_FAILED
    print_line(console, f"{job.state}: {job.reason}", "bold green")
    print_result(console, client, job, state_directory)
    return 0


def _cancel(client: Client, job_id: str) -> None:
    """Cancel the job, and wait until its processes have ended: a service that is stopped first leaves them running."""
    # A second Ctrl-C must not interrupt the cleanup.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    deadline = time.monotonic() + CANCEL_TIMEOUT_SECONDS
    if not client.job(job_id).has_ended:
        client.cancel(job_id)
    while not client.job(job_id).has_ended and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
