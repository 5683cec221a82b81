"""Streams of a service: `python -m benchmarks.service_streams`.

Starts a real service (SQLite unless `--postgresql` starts a server of its own), opens many streams of waiting jobs,
and lets these jobs change and end. Checks that every stream has every event once and the end. Meanwhile one more stream
is cut again and again, at random moments. Prints the memory of the service before and after the streams were opened.
"""

import argparse
import asyncio
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil

from benchmarks.service_load import make_service, say
from service.client import AsyncClient, Message
from tests.service.api import make_document
from tests.service.postgres import run_postgres
from tests.service.service_process import ServiceProcess

NUM_JOBS = 20
NUM_ROUNDS = 10
"""Times that each job is held and released."""
NUM_CUTS = 20
MAX_READ_SECONDS = 1.0
"""Longest time from one cut to the next."""


async def read_to_end(client: AsyncClient, job_id: str, begun: asyncio.Semaphore) -> list[str]:
    """Read a stream to its end, and return the ids of its events. begun: released once the job has come."""
    ids: list[str] = []
    is_begun = False
    async for message in client.stream(job_id):
        if message.name == "event":
            ids.append(message.last_id or "")
        elif message.name == "job" and not is_begun:
            is_begun = True
            begun.release()
    return ids


async def read_with_cuts(client: AsyncClient, job_id: str, is_over: asyncio.Event) -> tuple[list[str], int]:
    """Read a stream that is cut at random moments, and return the ids of its events, and how often it was cut.

    is_over: set after the last cut.
    """
    ids: list[str] = []
    last_id: str | None = None
    num_cuts = 0
    while True:
        messages = client.stream(job_id, last_id=last_id)
        seconds = random.uniform(0.0, MAX_READ_SECONDS) if num_cuts < NUM_CUTS else None
        try:
            async with asyncio.timeout(seconds):
                async for message in messages:
                    last_id = note(message, ids, last_id)
            return ids, num_cuts
        except TimeoutError:
            num_cuts += 1
            if num_cuts == NUM_CUTS:
                is_over.set()


def note(message: Message, ids: list[str], last_id: str | None) -> str | None:
    if message.name == "event":
        ids.append(message.last_id or "")
    return message.last_id or last_id


async def submit_waiting(client: AsyncClient, api_key: str) -> list[str]:
    """Submit jobs that wait for another one, and that a quota then keeps in the queue, and return their ids."""
    document = make_document(resources={"workers_per_node": 4, "memory": "1GiB"})
    blocker = await client.submit(document)
    async for job in client.follow(blocker.id):
        if job.state == "RUNNING":
            break
    job_ids = [(await client.submit(document)).id for _ in range(NUM_JOBS)]
    headers = {"Authorization": f"Bearer {api_key}"}
    httpx.put(f"{client.url}/v1/quotas/*", headers=headers, json={"num_running": 0}).raise_for_status()
    await client.cancel(blocker.id)
    return job_ids


async def change(client: AsyncClient, job_ids: list[str], is_cut_over: asyncio.Event) -> None:
    """Hold and release all jobs again and again, and cancel them."""
    num_rounds = 0
    while num_rounds < NUM_ROUNDS or not is_cut_over.is_set():
        num_rounds += 1
        for job_id in job_ids if num_rounds <= NUM_ROUNDS else job_ids[:1]:
            await client.hold(job_id)
            await client.release(job_id)
    for job_id in job_ids:
        await client.cancel(job_id)


async def measure(process: ServiceProcess, api_key: str, num_streams: int) -> None:
    service = psutil.Process(process.pid)
    async with AsyncClient(process.url, api_key, timeout_seconds=120.0) as client:
        job_ids = await submit_waiting(client, api_key)
        # One stream, so that whatever the first one needs is there.
        begun = asyncio.Semaphore(0)
        readers = [asyncio.create_task(read_to_end(client, job_ids[0], begun))]
        await begun.acquire()
        before = service.memory_full_info().pss
        chosen = [job_ids[number % NUM_JOBS] for number in range(1, num_streams)]
        readers += [asyncio.create_task(read_to_end(client, job_id, begun)) for job_id in chosen]
        for _ in chosen:
            await begun.acquire()
        after = service.memory_full_info().pss
        each = (after - before) / (num_streams - 1)
        say(f"{num_streams} streams: {before / 1e6:.1f} MB, then {after / 1e6:.1f} MB: {each / 1000:.1f} kB each")
        is_cut_over, start, cpu = asyncio.Event(), time.monotonic(), sum(service.cpu_times()[:2])
        cut = asyncio.create_task(read_with_cuts(client, job_ids[0], is_cut_over))
        cut.add_done_callback(lambda _: is_cut_over.set())
        await change(client, job_ids, is_cut_over)
        results = await asyncio.gather(*readers)
        cut_ids, num_cuts = await cut
        seconds, used = time.monotonic() - start, sum(service.cpu_times()[:2]) - cpu
        expected = {job_id: [str(event.id) async for event in client.events(job_id)] for job_id in job_ids}
    num_wrong = sum(ids != expected[job_id] for ids, job_id in zip(results, [job_ids[0], *chosen], strict=True))
    num_events = sum(map(len, results))
    say(f"{num_events} events in {seconds:.0f} s, {used:.1f} s of CPU; {num_wrong} streams have others than the table")
    say(f"cut {num_cuts} times: {'all events once' if cut_ids == expected[job_ids[0]] else 'WRONG EVENTS'}")
    say(f"memory at the end: {service.memory_full_info().pss / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--postgresql", action="store_true")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory, url = Path(stack.enter_context(tempfile.TemporaryDirectory())), None
        if arguments.postgresql:
            server = stack.enter_context(run_postgres())
            url = server.make_url(server.create_database())
        service = make_service(directory, url)
        service.environment |= {"DLRM_NUM_CORES": "4", "DLRM_REQUESTS_PER_SECOND": "1000000"}
        stack.enter_context(service)
        asyncio.run(measure(service, service.admin_key, arguments.streams))


if __name__ == "__main__":
    main()
