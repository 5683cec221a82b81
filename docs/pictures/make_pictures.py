"""Makes the pictures of the dashboard: `.venv/bin/python -m docs.pictures.make_pictures`, some minutes; needs Chromium.

Starts a service on loopback, makes jobs of examples/demo.toml in all states, and photographs their pages. With `--all
DIRECTORY` it writes every page and state instead, light and dark, on screens of all sizes, for somebody to look at.
"""

import argparse
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from cli.demo.service_process import run_service
from tests.service.dashboard.pages import (
    NUM_CORES,
    SCHEMES,
    SIZES,
    STATES,
    State,
    end_jobs,
    make_jobs,
    remember_browsers,
)

PICTURES = Path(__file__).parent
EXAMPLE = PICTURES.parents[1] / "examples" / "demo.toml"
NAMES = {
    "jobs": "jobs",
    "job": "large",
    "curves": "large curves",
    "gradients": "large gradients",
    "compare": "compare two",
}
"""State of which each picture of the documentation is."""
SETTLE_MILLISECONDS = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="DIRECTORY", help="write every page and state to this directory")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("chromium is missing: apt-get install chromium")
    document = {**tomllib.loads(EXAMPLE.read_text()), "variance_reduction": {}}
    with (
        tempfile.TemporaryDirectory() as directory,
        run_service(Path(directory), {"DLRM_NUM_CORES": str(NUM_CORES)}) as client,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        find_browser = remember_browsers(browser.new_context, client)
        jobs = make_jobs(client, document)

        def open_state(state: State) -> Page:
            page = find_browser(state.viewer).new_page()
            state.open(page, client.url, jobs)
            return page

        if arguments.all:
            photograph_all(open_state, arguments.all)
        else:
            for picture, name in NAMES.items():
                photograph(open_state(STATES[name]), "desktop", PICTURES / f"{picture}.png")
        end_jobs(client)


def photograph(page: Page, size: str, output: Path, *, is_whole: bool = False) -> None:
    """Write a picture of a page, once it is drawn; with its end if it `is_whole`."""
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(SETTLE_MILLISECONDS)
    page.screenshot(path=output, full_page=is_whole)


def photograph_all(open_state: Callable[[State], Page], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, state in STATES.items():
        page = open_state(state)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            for size in SIZES:
                photograph(page, size, directory / f"{name.replace(' ', '-')}-{size}-{scheme}.png", is_whole=True)
        page.close()


if __name__ == "__main__":
    main()
