"""Makes the picture of the README: `.venv/bin/python docs/pictures/make_pictures.py`, a minute or two; needs Chromium.

Starts a service on loopback, trains examples/demo.toml, and photographs the job's page.
"""

import json
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from playwright.sync_api import sync_playwright

from cli.demo.service_process import run_service
from dlrm import Client
from service.client.connection import get_ready_file_path

PICTURES = Path(__file__).parent
EXAMPLE = PICTURES.parents[1] / "examples" / "demo.toml"
WIDTH, HEIGHT = 1280, 640
"""Size of the picture in CSS pixels: the figures and the first two curves."""


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory, run_service(Path(directory), {}) as client:
        job_id = train_example(client)
        signin_link = json.loads(get_ready_file_path(Path(directory)).read_text())["signin_link"]
        photograph(chromium, signin_link, f"{client.url}/jobs/{job_id}", PICTURES / "job-page.png")


def train_example(client: Client) -> str:
    """Train the example to its end, and return the id of the job. Raises RuntimeError where it fails."""
    job = client.submit(tomllib.loads(EXAMPLE.read_text()))
    *_, last = client.follow(job.id)
    if last.state != "SUCCEEDED":
        raise RuntimeError(f"{last.state}: {last.message}")
    return last.id


def photograph(chromium: str, signin_link: str, url: str, output: Path) -> None:
    """Write a picture of the page at `url` to `output`, once its curves are drawn."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(signin_link)
        page.wait_for_url("**/")
        page.goto(url)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=output)
        browser.close()


if __name__ == "__main__":
    main()
