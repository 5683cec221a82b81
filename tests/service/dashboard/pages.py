"""Every page and state of the dashboard, and jobs for them: for the test of all pages, and for their pictures."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from playwright.sync_api import BrowserContext, Page

from dlrm import Client
from service.client import JobDetails, RoleName, ServiceError
from tests.patience import wait_until

Viewer = Literal["admin", "viewer", "newcomer", "nobody"]
"""Who looks: an admin, a viewer of the admin's jobs, somebody without jobs, and a browser without a session."""
LINKS: Mapping[str, tuple[RoleName, str]] = {
    "admin": ("admin", "admin"),
    "viewer": ("viewer", "admin"),
    "newcomer": ("submitter", "newcomer"),
}
"""Role and owner of the sign-in links of those who have a session."""
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SIZES = {"desktop": (1280, 800), "phone": (390, 844), "zoomed": (640, 400)}
"""Width and height of screens in CSS pixels; the last one is a desktop at 200 %."""
TABS = ("curves", "gradients", "logs", "events", "document")
NUM_CORES = 2
"""Cores that the service of these jobs has."""
SMALL_JOB = """\
[data]
format = "synthetic"
synthetic = { num_rows = 100_000, num_ids = 100 }

[model]
architecture = "dlrm"
embedding_dim = 4
bottom_mlp = [8, 4]
top_mlp = [8, 1]

[batch]
global_size = 1024

[run]
epochs = 1

[moments]
every = 1

[variance_reduction]

[resources]
workers_per_node = 1
memory = "1GiB"
"""
LARGE_JOB = SMALL_JOB.replace("1GiB", "9000GiB")
"""Job that fits no machine."""


@dataclass(frozen=True)
class Jobs:
    """Ids of jobs in every state that lasts."""

    small: str
    large: str
    other_rows: str
    """Job that was evaluated on other rows than `small` and `large`."""
    failed: str
    cancelled: str
    paused: str
    running: str
    waiting: str

    @property
    def all(self) -> str:
        """Ids of all jobs, as the address of the page that compares them has them."""
        return ",".join(asdict(self).values())


def make_jobs(client: Client, document: Mapping[str, Any]) -> Jobs:
    """Train a document on one core with two batches and on other rows, and bring further jobs of it into other states.

    The service must have NUM_CORES cores. document: has synthetic rows and a batch. Raises RuntimeError if a job does
    not end as it is meant to.
    """
    size = document["batch"]["global_size"]
    synthetic = document["data"]["synthetic"]
    resources = {**document["resources"], "workers_per_node": 1}
    one_core = {**document, "labels": {"sweep": "batch"}, "resources": resources}
    endless = {**one_core, "run": {**document["run"], "epochs": 1000}}

    def submit(name: str, base: Mapping[str, Any], **changes: Any) -> str:
        return client.submit({**base, "name": name, **changes}).id

    small = submit("small-batch", one_core, batch={"global_size": size // 4})
    large = submit("large-batch", one_core)
    other_rows = submit("other-rows", one_core, data={**document["data"], "synthetic": {**synthetic, "seed": 7}})
    too_fast = {"name": "sgd", "learning_rate": 1e6}
    failed = submit("too-fast", one_core, dense_optimizer=too_fast, max_restarts=0)
    cancelled, paused = submit("cancelled", endless), submit("paused", endless)
    for job_id in (small, large, other_rows, failed):
        *_, last = client.follow(job_id)
        if (last.state == "FAILED") != (job_id == failed):
            raise RuntimeError(f"{last.state}: {last.message}")
    for job_id in (cancelled, paused):
        _wait(client, job_id, lambda job: (job.progress.step or 0) > 0)
    client.cancel(cancelled)
    client.pause(paused)
    running = submit("endless", endless)
    waiting = submit("waits", endless, resources={**resources, "workers_per_node": NUM_CORES})
    _wait(client, running, lambda job: (job.progress.step or 0) > 0)
    _wait(client, cancelled, lambda job: job.state == "CANCELLED")
    _wait(client, paused, lambda job: job.state == "PAUSED")
    return Jobs(small, large, other_rows, failed, cancelled, paused, running, waiting)


def end_jobs(client: Client) -> None:
    """Cancel all jobs, and wait until they have ended: they would go on without their service."""
    for job in client.jobs():
        if not job.has_ended:
            # One that has ended meanwhile is refused.
            with suppress(ServiceError):
                client.cancel(job.id)
    wait_until(lambda: all(job.has_ended for job in client.jobs()))


def _wait(client: Client, job_id: str, is_reached: Callable[[JobDetails], bool]) -> None:
    wait_until(lambda: is_reached(client.job(job_id)))


def remember_browsers(make_context: Callable[[], BrowserContext], client: Client) -> Callable[[Viewer], BrowserContext]:
    """Return what finds the browser of a viewer, which is made and signed in once: its pages load files once."""

    @cache
    def find(viewer: Viewer) -> BrowserContext:
        context = make_context()
        if viewer != "nobody":
            role, owner = LINKS[viewer]
            link = client.create_login_link(role, owner=owner)
            page = context.new_page()
            page.goto(f"{client.url}/signin#token={link.token}")
            page.wait_for_url(f"{client.url}/")
            page.close()
        return context

    return find


@dataclass(frozen=True)
class State:
    """A page in one state."""

    path: str
    """Path of the page, with the names of jobs for their ids."""
    ready: str
    """Selector of an element that is visible as soon as the page is drawn."""
    reach: Callable[[Page], None] | None = None
    """What brings the page that is drawn into the state."""
    viewer: Viewer = "admin"
    refusal: str = ""
    """Part of the message of a refused request that the state is about; empty if it is about none."""

    def open(self, page: Page, url: str, jobs: Jobs) -> None:
        """Open the page of the service at `url`, and bring it into the state."""
        page.goto(url + self.path.format(**asdict(jobs), all=jobs.all))
        page.locator(self.ready).first.wait_for()
        if self.reach:
            self.reach(page)


def press(name: str, until: str) -> Callable[[Page], None]:
    """Return what presses the button of this name, and waits until an element is visible."""

    def reach(page: Page) -> None:
        page.get_by_role("button", name=name).first.click()
        page.locator(until).first.wait_for()

    return reach


def ask(name: str) -> Callable[[Page], None]:
    """Return what presses the button of this name, which opens a dialog."""
    return press(name, "dialog[open]")


def select_all_jobs(page: Page) -> None:
    """Select the jobs of the page."""
    page.locator("#pick-all").check()


def narrow_on_phone(page: Page) -> None:
    """Open what narrows the list on a phone, where it is closed at first."""
    page.set_viewport_size({"width": 390, "height": 844})
    press("Filter", "#facet-states a")(page)


def write(text: str, until: str) -> Callable[[Page], None]:
    """Return what writes a job document, and waits until an element is visible."""

    def reach(page: Page) -> None:
        page.get_by_label("Job document").fill(text)
        page.locator(until).first.wait_for()

    return reach


def open_all_fields(page: Page) -> None:
    """Open every section of the form, and put the focus on a field, whose help is shown then."""
    page.locator("#all details").evaluate_all("all => all.forEach((details) => (details.open = true))")
    page.get_by_label("Batch size").focus()


def chain(*steps: Callable[[Page], None]) -> Callable[[Page], None]:
    """Return what does several things one after the other."""

    def reach(page: Page) -> None:
        for step in steps:
            step(page)

    return reach


def sign_in_with_word(page: Page) -> None:
    """Try to sign in with what is neither a key nor a link."""
    page.get_by_label("API key or sign-in link").fill("word")
    press("Sign in", "#refusal")(page)


def open_key_form(page: Page) -> None:
    """Open the form of a new key, and send it empty, so that fields have errors."""
    page.get_by_text("New key", exact=True).click()
    press("Make the key", "#create-name[aria-invalid]")(page)


def show_made_key(page: Page) -> None:
    """Have the page show a new key; the answer is made up, since no key of an admin is at hand."""
    key = {"id": "key_1", "name": "laptop", "owner": "ann", "role": "submitter", "key": "dlrm_" + "k" * 43}
    page.route("**/v1/keys", lambda route: route.fulfill(status=201, json=key))
    page.get_by_text("New key", exact=True).click()
    page.locator("#create-name").fill("laptop")
    page.locator("#create-admin_key").fill("dlrm_word")
    press("Make the key", "#made")(page)


JOBS, NEW, KEYS = "#jobs tbody tr", "#first select:enabled", "#keys tbody tr"
"""What is visible as soon as a page is drawn: rows of jobs, fields of the form of a new job, rows of keys."""

STATES = {
    "sign in": State("/signin", "#form", viewer="nobody"),
    "sign in refused": State("/signin", "#form", sign_in_with_word, viewer="nobody"),
    "signed out": State("/jobs/{large}", "#form", viewer="nobody", refusal="401|ERR_ABORTED"),
    "no page": State("/nowhere", "h1", refusal="404"),
    "no job": State("/jobs/job_nowhere", "#absent", refusal="404"),
    "no jobs": State("/", "#empty", viewer="newcomer"),
    "jobs": State("/", JOBS),
    "no job matches": State("/?q=nothing-like-it", "#nothing"),
    "jobs narrowed": State("/?state=PAUSED&label=sweep%3Abatch", "#chips li"),
    "jobs narrowed on a phone": State("/", JOBS, narrow_on_phone),
    "jobs selected": State("/", JOBS, select_all_jobs),
    "jobs to cancel": State("/?state=QUEUED", JOBS, chain(select_all_jobs, ask("Cancel 1 job"))),
    "jobs to label": State("/", JOBS, chain(select_all_jobs, ask("Label 8 jobs"))),
    "view to save": State("/?state=PAUSED", "#chips li", ask("Save view")),
    "jobs of a viewer": State("/", JOBS, select_all_jobs, viewer="viewer"),
    **{
        f"{job} {tab}".rstrip(): State(f"/jobs/{{{job}}}/{tab}".rstrip("/"), "#job")
        for job in ("large", "failed", "cancelled", "paused", "running", "waiting")
        for tab in ("", *TABS)
    },
    "labels edited": State("/jobs/{paused}", "#job", ask("Edit labels")),
    "job to delete": State("/jobs/{failed}", "#job", ask("Delete…")),
    "job of a viewer": State("/jobs/{running}", "#job", viewer="viewer"),
    "compare none": State("/compare", "#empty"),
    "compare one": State("/compare?ids={large}", "#sentence"),
    "compare two": State("/compare?ids={small},{large}", "#auc [data-points]"),
    "compare other rows": State("/compare?ids={large},{other_rows}", "#auc [data-points]"),
    "compare eight": State("/compare?ids={all}", "#auc [data-points]"),
    "compare many": State("/compare?label=sweep%3Abatch", "#scatter .point"),
    "compare no match": State("/compare?label=sweep%3Anone", "#none"),
    "capacity": State("/capacity", "#holders"),
    "quota": State("/capacity", "#holders", ask("Set the quota of admin")),
    "capacity of a viewer": State("/capacity", "#holders", viewer="viewer"),
    "new job": State("/new", NEW),
    "quick start": State("/new", NEW, press("Quick start", "#finding-state[data-kind=good]")),
    "cloned": State("/new?from={large}", "#origin"),
    "no TOML": State("/new", NEW, write("data =", ".mark")),
    "wrong field": State("/new", NEW, write("batch.global_size = -1", ".mark")),
    "fields": State("/new", NEW, open_all_fields),
    "fits": State("/new", NEW, chain(write(SMALL_JOB, "#document"), press("Check", "#plan"))),
    "does not fit": State("/new", NEW, chain(write(LARGE_JOB, "#document"), press("Check", "#faults"))),
    "keys": State("/keys", KEYS),
    "key with errors": State("/keys", KEYS, open_key_form),
    "key made": State("/keys", KEYS, show_made_key),
    "key to revoke": State("/keys", KEYS, ask("Revoke")),
    "keys of a viewer": State("/keys", KEYS, viewer="viewer"),
    "audit": State("/audit", "#events tbody tr"),
    "audit of a viewer": State("/audit", "#refused", viewer="viewer"),
}
"""Every page and state of the dashboard by its name."""
