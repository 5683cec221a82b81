"""Weight and speed of the dashboard's pages in Chromium: `python -m benchmarks.dashboard_pages`.

Fills a database as `benchmarks.service_scale` does, with many jobs and one running job of many steps, and starts a real
service on it. Each page is opened in a browser that knows nothing of the service, several times: bytes over the
network, requests, and the time until its content is there and the page answers to a click; medians. Then tabs are
left open: the CPU of the service meanwhile, less its CPU without one, and the bytes of each.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from benchmarks.service_load import make_service, say
from benchmarks.service_scale import SETTLE_SECONDS, fill
from tests.service.service_process import ServiceProcess


@dataclass
class Traffic:
    """Bytes and requests of a page since its beginning."""

    num_bytes: int = 0
    num_requests: int = 0

    @classmethod
    def watch(cls, page: Page) -> "Traffic":
        traffic, protocol = cls(), page.context.new_cdp_session(page)
        protocol.send("Network.enable")

        def add_bytes(event: dict[str, int]) -> None:
            traffic.num_bytes += event["encodedDataLength"]

        def add_request(_: object) -> None:
            traffic.num_requests += 1

        # Of an answer that has ended all bytes with its headers; of a stream what has come.
        protocol.on("Network.loadingFinished", add_bytes)
        protocol.on("Network.requestWillBeSent", add_request)
        return traffic


def list_pages(long_job: str, waiting_job: str, others: str) -> dict[str, tuple[str, str]]:
    """Return by name the path of each page, and a selector of what shows that its content is there."""
    job = f"/jobs/{long_job}"
    return {
        "jobs": ("/", "#jobs tbody tr:nth-child(50)"),
        "job": (job, "#tiles div"),
        "waiting job": (f"/jobs/{waiting_job}", "#job"),
        "curves": (f"{job}/curves", ".u-over"),
        "gradients": (f"{job}/gradients", "#job"),
        "logs": (f"{job}/logs", "#job"),
        "events": (f"{job}/events", "#job"),
        "document": (f"{job}/document", "#job"),
        "compare": (f"/compare?ids={others}", "#sentence"),
        "capacity": ("/capacity", "#holders"),
        "new job": ("/new", "#first select:enabled"),
        "keys": ("/keys", "#keys tbody tr"),
        "audit": ("/audit", "#events tbody tr"),
    }


def sign_in(browser: Browser, service: ServiceProcess, state: Path) -> None:
    """Write the cookies of a signed-in browser to a file."""
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {service.admin_key}"}) as client:
        token = client.post("/v1/session/links", json={"role": "admin"}).raise_for_status().json()["token"]
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{service.url}/signin#token={token}")
        page.wait_for_url(f"{service.url}/")
        context.storage_state(path=state)


def open_page(context: BrowserContext, url: str, selector: str) -> tuple[Page, Traffic, float]:
    """Open a page; return the seconds until its content is visible and its thread is free."""
    page = context.new_page()
    traffic, start = Traffic.watch(page), time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_selector(selector, state="visible")
    page.evaluate("() => new Promise((resolve) => requestIdleCallback(resolve, { timeout: 5000 }))")
    return page, traffic, time.perf_counter() - start


def measure_pages(
    browser: Browser, service: ServiceProcess, state: Path, pages: dict[str, tuple[str, str]], runs: int
) -> None:
    say("| page | kB | requests | s until it can be used |")
    say("|---|---|---|---|")
    for name, (path, selector) in pages.items():
        found: list[tuple[int, int, float]] = []
        for _ in range(runs):
            with browser.new_context(storage_state=state) as context:
                page, traffic, seconds = open_page(context, service.url + path, selector)
                page.wait_for_timeout(500)
                found.append((traffic.num_bytes, traffic.num_requests, seconds))
        num_bytes, num_requests, seconds = map(statistics.median, zip(*found, strict=True))
        say(f"| {name} | {num_bytes / 1000:.0f} | {num_requests:.0f} | {seconds:.2f} |")


def measure_tabs(
    browser: Browser, service: ServiceProcess, state: Path, pages: dict[str, tuple[str, str]], seconds: float
) -> None:
    process = psutil.Process(service.pid)

    def use_cpu() -> float:
        """Return the share of a core that the service uses for some time."""
        times, start = process.cpu_times(), time.perf_counter()
        before = times.user + times.system
        time.sleep(seconds)
        times = process.cpu_times()
        return (times.user + times.system - before) / (time.perf_counter() - start)

    idle = use_cpu()
    say(f"without a tab: {100 * idle:.2f} % of a core")
    for name in pages:
        path, selector = pages[name]
        with browser.new_context(storage_state=state) as context:
            _, traffic, _ = open_page(context, service.url + path, selector)
            num_bytes, used = traffic.num_bytes, use_cpu()
            say(f"{name}: {100 * (used - idle):.2f} % of a core, {(traffic.num_bytes - num_bytes) / 1000:.1f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the long job")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="time for which a tab is left open")
    parser.add_argument("--directory", type=Path, help="keeps the database, for a further run (default: temporary)")
    parser.add_argument("--database-url", help="an empty database (default: SQLite in a temporary directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        directory = arguments.directory or Path(name)
        long_job, waiting_job = fill(directory, arguments)
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with make_service(directory, arguments.database_url) as service:
            time.sleep(SETTLE_SECONDS)
            sign_in(browser, service, state := Path(name) / "cookies.json")
            headers = {"Authorization": f"Bearer {service.admin_key}"}
            query = {"limit": 8, "state": "SUCCEEDED"}
            found = httpx.get(f"{service.url}/v1/jobs", headers=headers, params=query).raise_for_status().json()
            pages = list_pages(long_job, waiting_job, ",".join(job["id"] for job in found["items"]))
            measure_pages(browser, service, state, pages, arguments.runs)
            measure_tabs(browser, service, state, pages, arguments.seconds)
        browser.close()
    say(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
