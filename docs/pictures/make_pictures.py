"""Makes the pictures of the dashboard: `.venv/bin/python docs/pictures/make_pictures.py`, some minutes; needs Chromium.

Starts a service on loopback, trains examples/demo.toml with two batches, has a third job fail and a fourth one wait,
and photographs their pages. With `--all DIRECTORY` it writes every page and state instead, light and dark, on a desktop
and on a phone, for somebody to look at.
"""

import argparse
import json
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

from cli.demo.service_process import run_service
from dlrm import Client
from service.client.connection import get_ready_file_path

PICTURES = Path(__file__).parent
EXAMPLE = PICTURES.parents[1] / "examples" / "demo.toml"
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
"""Width and height of the screens in CSS pixels."""
SETTLE_MILLISECONDS = 1500
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@dataclass(frozen=True)
class Jobs:
    """Ids of the jobs in the pictures."""

    small: str
    large: str
    failed: str
    waiting: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="DIRECTORY", help="write every page and state to this directory")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("chromium is missing: apt-get install chromium")
    with (
        tempfile.TemporaryDirectory() as directory,
        run_service(Path(directory), {"DLRM_NUM_CORES": "2"}) as client,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        sign_in(browser, client.url, Path(directory), cookies := Path(directory) / "cookies.json")
        pages = list_pages(make_jobs(client))
        if arguments.all:
            photograph_all(browser, client.url, cookies, pages, arguments.all)
        else:
            for name in ("jobs", "job", "curves", "gradients", "compare"):
                with open_page(browser, cookies, "light", "desktop") as page:
                    photograph(page, client.url + pages[name], PICTURES / f"{name}.png")


def make_jobs(client: Client) -> Jobs:
    """Train the example with two batches; have a third job fail, and a fourth one wait for the cores of a fifth one."""
    document = tomllib.loads(EXAMPLE.read_text())
    document["variance_reduction"] = {}
    small = train(client, {**document, "name": "batch-4k", "batch": {"global_size": 4096}})
    large = train(client, {**document, "name": "batch-16k"})
    diverging = {**document, "name": "too-fast", "dense_optimizer": {"name": "sgd", "learning_rate": 1e6}}
    failed = client.submit({**diverging, "max_restarts": 0})
    *_, _ = client.follow(failed.id)
    endless = {**document, "name": "endless", "run": {"epochs": 1000}}
    client.submit(endless)
    return Jobs(small, large, failed.id, client.submit({**endless, "name": "waits"}).id)


def train(client: Client, document: Mapping[str, Any]) -> str:
    """Train a job to its end, and return its id. Raises RuntimeError if it fails."""
    *_, last = client.follow(client.submit(dict(document)).id)
    if last.state != "SUCCEEDED":
        raise RuntimeError(f"{last.state}: {last.message}")
    return last.id


def list_pages(jobs: Jobs) -> dict[str, str]:
    """Return the path of each page and state by its name."""
    tabs = ("curves", "gradients", "logs", "events", "document")
    return {
        "jobs": "/",
        "no-match": "/?q=nothing-like-it",
        "job": f"/jobs/{jobs.large}",
        **{tab: f"/jobs/{jobs.large}/{tab}" for tab in tabs},
        "failed": f"/jobs/{jobs.failed}",
        "failed-logs": f"/jobs/{jobs.failed}/logs",
        "waiting": f"/jobs/{jobs.waiting}",
        "waiting-curves": f"/jobs/{jobs.waiting}/curves",
        "no-job": "/jobs/job_nowhere",
        "compare": f"/compare?ids={jobs.small},{jobs.large}",
        "compare-nothing": "/compare",
        "capacity": "/capacity",
        "new": "/new",
        "clone": f"/new?from={jobs.large}",
        "keys": "/keys",
        "audit": "/audit",
    }


def sign_in(browser: Browser, url: str, state_directory: Path, cookies: Path) -> None:
    """Write the cookies of a signed-in browser to a file."""
    link = json.loads(get_ready_file_path(state_directory).read_text())["signin_link"]
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(link)
        page.wait_for_url(f"{url}/")
        context.storage_state(path=cookies)


@contextmanager
def open_page(browser: Browser, cookies: Path, scheme: Scheme, size: str) -> Iterator[Page]:
    width, height = SIZES[size]
    viewport = {"width": width, "height": height}
    with browser.new_context(storage_state=cookies, viewport=viewport, color_scheme=scheme) as context:  # pyright: ignore
        yield context.new_page()


def photograph(page: Page, url: str, output: Path, *, is_whole: bool = False) -> None:
    """Write a picture of the page at `url`, once it is drawn; with its end if it `is_whole`."""
    page.goto(url)
    page.wait_for_timeout(SETTLE_MILLISECONDS)
    page.screenshot(path=output, full_page=is_whole)


def photograph_all(browser: Browser, url: str, cookies: Path, pages: Mapping[str, str], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for scheme in SCHEMES:
        for size in SIZES:
            with open_page(browser, cookies, scheme, size) as page:
                for name, path in pages.items():
                    photograph(page, url + path, directory / f"{name}-{size}-{scheme}.png", is_whole=True)


if __name__ == "__main__":
    main()
