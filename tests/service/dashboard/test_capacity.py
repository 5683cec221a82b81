"""The page of capacity: who uses the machine, who waits, and what an owner may use."""

import re
from collections.abc import Callable
from itertools import count

import pytest
from playwright.sync_api import Page, expect

from service.client import Client, Job
from tests.patience import wait_until
from tests.service.dashboard.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {
    "DLRM_NUM_CORES": "2",
    "DLRM_MEMORY_BYTES": str(4 * 2**30),
    "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2",
    "DLRM_GRACE_PERIOD_SECONDS": "5",
}
SOON = "const wait = setTimeout; window.setTimeout = (work, milliseconds) => wait(work, milliseconds / 10);"
"""Script that has pages read again ten times as soon."""
MAX_PAUSE_MILLISECONDS = 15_000
"""Longest pause of the page between two reads."""


def submit(client: Client, name: str, num_cores: int, **changes: object) -> Job:
    return client.submit(
        {
            "name": name,
            "labels": {"behaviour": "wait"},
            "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
            "batch": {"global_size": 64},
            "resources": {"workers_per_node": 1, "threads_per_worker": num_cores, "memory": "1GiB"},
            **changes,
        }
    )


def expect_soon(page: Page, is_shown: Callable[[], bool]) -> None:
    """Wait for what the page shows after its next read. Its clock is put forward, since it pauses between two."""

    def look() -> bool:
        page.clock.fast_forward(MAX_PAUSE_MILLISECONDS)
        return is_shown()

    wait_until(look)


def test_who_uses_the_machine_who_waits_and_a_quota_that_an_admin_sets(page: Page, site: Site) -> None:
    page.clock.install()
    page.goto(f"{site.url}/capacity")
    expect(page.locator("#launchers")).to_contain_text("0 of 2 cores in use")
    expect(page.locator("#idle")).to_be_visible()
    expect(page.locator("#queue-empty")).to_be_visible()

    running = submit(site.client, "first", 2)
    waiting = [submit(site.client, name, 1, priority=priority) for name, priority in (("later", 0), ("urgent", 5))]
    wait_until(lambda: site.client.job(running.id).state == "RUNNING")
    # Without a reload, since the stream says that something has changed.
    expect_soon(page, lambda: page.locator("#holders tbody th a").all_inner_texts() == ["first"])
    expect(page.locator("#launchers")).to_contain_text("2 of 2 cores in use")
    expect(page.locator("#launchers")).to_contain_text("3.0 GiB free")
    expect(page.locator("#queue tbody th a")).to_have_text(["urgent", "later"])
    expect(page.locator("#queue tbody tr").first).to_contain_text("needs 1 core, 0 free")
    expect(page.locator("#owners .gpu").first).to_be_hidden()

    page.get_by_role("button", name="Set the quota of admin").click()
    page.get_by_role("textbox", name="Cores").fill("1.5")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator("#quota-num_cores-error")).to_have_text("a whole number, 0 or more")
    page.get_by_role("textbox", name="Cores").fill("2")
    page.get_by_label("Memory in GiB").fill("1.5")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator("#owners tbody tr")).to_contain_text(["2 of 2"])
    expect(page.locator("#owners tbody tr")).to_contain_text(["1.0 of 1.5 GiB"])
    page.get_by_role("button", name="Change the quota of admin").click()
    page.get_by_role("button", name="Remove the quota").click()
    expect(page.locator("#owners tbody small")).to_have_text("no quota")

    for job in (*waiting, running):
        site.client.cancel(job.id)
    expect_soon(page, page.locator("#idle").is_visible)


@pytest.mark.slow
def test_what_has_no_message_is_read_again_though_messages_come_all_the_time(page: Page, site: Site) -> None:
    page.add_init_script(SOON)
    job = submit(site.client, "trains", 1)
    page.goto(f"{site.url}/capacity")
    expect(page.locator("#holders .state")).to_have_text("running")
    numbers = count()

    def send_message() -> None:
        site.client.edit(job.id, labels={"step": str(next(numbers))})

    # The first message of a job is news.
    with page.expect_response(re.compile("/v1/quotas")):
        send_message()
    set_quota = page.request.put(f"{site.url}/v1/quotas/nobody", data={"num_cores": 1}, headers={"Origin": site.url})
    assert set_quota.ok

    def is_shown() -> bool:
        send_message()
        return page.locator("#owners tbody th", has_text="nobody").is_visible()

    wait_until(is_shown)
    site.client.cancel(job.id)


@pytest.mark.slow
def test_a_viewer_sees_the_sum_of_others_and_no_actions_on_a_narrow_screen(page: Page, site: Site) -> None:
    job = submit(site.client, "n" * 63, 2)
    link = site.client.create_login_link("viewer", owner="ann")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/signin#token={link.token}")
    page.wait_for_url(f"{site.url}/")
    page.goto(f"{site.url}/capacity")
    wait_until(lambda: site.client.job(job.id).state == "RUNNING")
    expect(page.locator("#holders-note")).to_have_text("One job of another owner holds 2 cores, 1.0 GiB.")
    expect(page.get_by_role("button", name="quota")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    site.client.cancel(job.id)
