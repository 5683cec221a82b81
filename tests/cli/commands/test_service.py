"""The commands against a real service whose trainer fails at once: jobs, their deletion, keys and links."""

import json
import os
import pty
import sqlite3
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.demo.service_process import run_service
from cli.experiments.trials.results import read_results
from cli.render.job_tables import format_time_since
from service.client import Client
from tests.cli.conftest import Command, command, run
from tests.patience import wait_until
from tests.service.jobs.test_checkpoints_api import save_checkpoint

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
DOCUMENT: dict[str, Any] = {
    "name": "first",
    "labels": {"team": "ads"},
    "max_restarts": 0,
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"memory": "1GiB"},
}


@pytest.fixture(scope="module")
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("work") / ".dlrm"
    with run_service(directory, SETTINGS):
        yield directory


@pytest.fixture(autouse=True)
def _below_the_state_directory(monkeypatch: pytest.MonkeyPatch, state_directory: Path) -> None:
    for name in ("DLRM_URL", "DLRM_API_KEY", "DLRM_STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(state_directory.parent)


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(DOCUMENT))
    return str(path)


def is_there(job_id: str) -> bool:
    with Client() as client:
        return job_id in {job.id for job in client.jobs()}


def list_keys(dlrm: Command, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dlrm("keys", "list", "--json", *options).out.splitlines()]


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands take their output for a terminal of 80 columns, without colours."""
    for name, value in (("COLUMNS", "80"), ("FORCE_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)


def test_a_job_is_submitted_followed_shown_and_restarted(dlrm: Command, job_file: str) -> None:
    ended = dlrm("submit", job_file, "--follow")
    assert (ended.code, "worker_crashed" in ended.err) == (1, True)
    old = ended.out.strip()
    shown = dlrm("show", old).out
    assert "FAILED" in shown
    assert "world_size" in shown
    assert "what to change" in shown
    assert tomllib.loads(dlrm("show", old, "--document").out)["batch"] == {"global_size": 64}
    assert json.loads(dlrm("show", old, "--json").out)["spec"]["batch"]["global_size"] == 64
    assert dlrm("logs", old, "--rank", "launch", "--follow").code == 0
    assert dlrm("logs", old, "--rank", "launch", "--attempt", "1").code == 0
    unknown = dlrm("logs", old, "--attempt", "7")
    assert (unknown.code, "attempt 7" in unknown.err) == (2, True)
    refused = dlrm("cancel", old)
    assert (refused.code, "already ended" in refused.err) == (2, True)
    assert dlrm("resume", old).code == 2
    new = dlrm("restart", old).out.strip()
    assert new != old
    assert ["restarted", "from", old] in [line.split() for line in dlrm("show", new).out.splitlines()]


def test_a_job_gets_another_priority_and_other_labels(dlrm: Command, job_file: str) -> None:
    job_id = dlrm("submit", job_file).out.strip()
    edited = dlrm("edit", job_id, "--label", "stage:final", "--label", "a:b=c", "--remove-label", "team")
    assert edited.out.strip() == f"{job_id} priority 0, a:b=c stage:final"
    assert "label stage = final" in dlrm("show", job_id).out
    for arguments, message in ((("--label", "stage"), "'stage' has no value"), ((), "nothing to change")):
        refused = dlrm("edit", job_id, *arguments)
        assert (refused.code, message in refused.err) == (2, True)


def test_jobs_are_compared_in_80_columns(dlrm: Command, job_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [
        dlrm("submit", job_file, "--set", change).out.strip() for change in ("run.seed=1", "run.seed=2", "priority=3")
    ]
    ids.append(dlrm("submit", job_file, "--set", "dense_optimizer.name=lamb").out.strip())
    groups = [job["group"] for job in json.loads(dlrm("compare", *ids, "--json").out)["jobs"]]
    assert groups == [0, 0, 0, 1]
    at_terminal(monkeypatch)
    lines = dlrm("compare", *ids).out.splitlines()
    assert ["dense_optimizer.name", "A", "adam"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 80


def test_a_schedule_is_added_run_paused_resumed_and_deleted(
    dlrm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**DOCUMENT, "name": "first-{due:%Y%m%d}"}))
    added = dlrm("schedules", "create", str(path), "--name", "nightly", "--cron", "0 2 * * *", "--set", "priority=5")
    schedule_id = added.out.strip()
    assert dlrm("schedules", "run", schedule_id).code == 0

    def find_job() -> str | None:
        return json.loads(dlrm("schedules", "show", schedule_id, "--json").out)["last_job_id"]

    job_id = wait_until(find_job)
    assert json.loads(dlrm("jobs", "--label", "schedule:nightly", "--json").out)["id"] == job_id
    assert job_id in dlrm("schedules", "show", schedule_id).out
    at_terminal(monkeypatch)
    lines = dlrm("schedules", "list").out.splitlines()
    assert lines[1].startswith(f"{schedule_id} nightly")
    assert max(map(len, lines)) <= 80
    assert dlrm("schedules", "pause", "nightly").out.strip() == "nightly paused"
    assert "next at " in dlrm("schedules", "resume", "nightly").out
    assert dlrm("schedules", "delete", schedule_id).code == 0
    assert dlrm("schedules", "list", "--json").out == ""
    refused = dlrm("schedules", "create", str(path), "--name", "x", "--cron", "daily")
    assert (refused.code, "cron: is no cron expression" in refused.err) == (2, True)


def test_a_webhook_is_made_listed_tried_and_deleted(dlrm: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    made = dlrm("webhooks", "create", "https://hooks.example/dlrm", "--state", "FAILED", "--label", "team:none")
    assert made.out.startswith("whsec_")
    webhook_id = made.err.split(":")[0]
    [shown] = [json.loads(line) for line in dlrm("webhooks", "list", "--json").out.splitlines()]
    assert (shown["id"], shown["states"], shown["labels"]) == (webhook_id, ["FAILED"], {"team": "none"})
    at_terminal(monkeypatch)
    lines = dlrm("webhooks", "list").out.splitlines()
    assert webhook_id in lines[1]
    assert max(map(len, lines)) <= 80
    assert dlrm("webhooks", "test", webhook_id).code == 0
    assert dlrm("webhooks", "delete", webhook_id).code == 0
    assert dlrm("webhooks", "list", "--json").out == ""
    refused = dlrm("webhooks", "create", "hooks")
    assert (refused.code, "url: should be a URL" in refused.err) == (2, True)


def test_jobs_are_found_by_owner_time_text_and_label(dlrm: Command, job_file: str) -> None:
    ids = [dlrm("submit", job_file).out.strip() for _ in range(2)]
    assert ids[1] in dlrm("jobs").out
    lines = dlrm("jobs", "--label", "team:ads", "--limit", "2", "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids[::-1]

    def find(*options: str) -> bool:
        ended = dlrm("jobs", "--json", "--limit", "1000", *options)
        assert ended.code == 0, ended.err
        return ids[0] in {json.loads(line)["id"] for line in ended.out.splitlines()}

    assert find("--owner", "admin", "--since", "1h", "--search", ids[0][-6:].lower())
    for options in (("--owner", "nobody"), ("--until", "1h"), ("--since", "2999-01-01"), ("--search", "nothing")):
        assert not find(*options)


def test_a_listed_job_is_one_line_whatever_its_name(
    dlrm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**DOCUMENT, "name": "long" * 12, "labels": {"length": "long"}}))
    job_id = dlrm("submit", str(path), "--follow").out.strip()
    monkeypatch.setenv("COLUMNS", "80")
    piped = dlrm("jobs", "--label", "length:long").out.splitlines()
    assert [line.split() for line in piped[1:]] == [[job_id, "long" * 12, "FAILED", "worker_crashed"]]
    at_terminal(monkeypatch)
    _, line = dlrm("jobs", "--label", "length:long").out.splitlines()
    assert line.startswith(f"{job_id} long")
    assert "…" in line
    assert len(line) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "job_nowhere"), "job_nowhere"),
        (("jobs", "--since", "yesterday"), "--since: 'yesterday' is not a time"),
        *((("pause", job_id), f"JOB_ID: {job_id!r} is not the id of a job") for job_id in ("", "..", "job/1")),
        (("resume", "job_1", "--set", "run.epochs=2"), "job_1: a job of the service resumes as it is"),
        (("resume", "job/1"), "job/1: not the directory of a run"),
        (("delete", "job_1", "../keys/key_1", "--yes"), "JOB_ID: '../keys/key_1' is not the id of a job"),
        (("serve", "--port", "99999", "--state-directory", "."), "error: DLRM_PORT: "),
        (("keys", "create", "a b", "--role", "viewer"), "name: "),
        (("keys", "create", "x", "--role", "viewer", "--owner", "-"), "owner: "),
        (("keys", "create", "admin", "--role", "viewer"), "choose another name, or revoke that key first"),
        (("keys", "revoke", "key_nowhere"), "there is no key key_nowhere"),
        (("keys", "revoke", "key/1"), "KEY_ID: this is not the id of a key"),
        (("keys", "revoke", "dlrm_secret"), "KEY_ID: this is not the id of a key"),
        (("login-link", "--owner", "a b"), "owner: "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(dlrm: Command, arguments: tuple[str, ...], message: str) -> None:
    ended = dlrm(*arguments)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert "dlrm_secret" not in ended.err


@pytest.mark.slow
def test_a_second_service_on_the_same_state_is_refused(state_directory: Path) -> None:
    ended = run("serve", "--port", "0", "--state-directory", state_directory)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: another service")


def test_data_beside_the_document_that_no_data_root_has_is_named_in_the_refusal(dlrm: Command, tmp_path: Path) -> None:
    (tmp_path / "beside.tsv").write_text("1")
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"data": {"train": ["beside.tsv", "nowhere.tsv"]}}))
    ended = dlrm("submit", str(path))
    assert ended.code == 2
    first, second = ended.err.strip().splitlines()
    assert "data.train.0: 'beside.tsv' is neither a file nor a directory with files: looked for /" in first
    assert f"there is {tmp_path}/beside.tsv, but a relative path counts from the data roots of the service" in first
    assert "there is" not in second


@pytest.mark.slow
def test_a_trial_whose_job_failed_is_submitted_anew_by_the_next_sweep(
    dlrm: Command, tmp_path: Path, job_file: str
) -> None:
    document, output = tmp_path / "failing.toml", tmp_path / "out"
    document.write_text(f'job = "{Path(job_file).name}"\n')
    for number in (1, 2):
        ended = dlrm("sweep", str(document), "--output", str(output), "--service", "auto")
        assert ended.code == 0
        assert "1 trial failed; the same command tries again" in ended.out
        results = read_results(output / "results.jsonl")
        assert [(result.outcome, result.reason) for result in results] == [("failed", "worker_crashed")] * number
        assert len({result.key for result in results}) == 1
        with Client() as client:
            jobs = list(client.jobs(label=f"sweep-trial:{results[0].key}"))
        labels = [(job.name, job.labels["sweep"], job.labels["team"]) for job in jobs]
        assert labels == [("failing", "failing", "ads")] * number


def test_a_service_that_is_not_there_ends_a_sweep_before_anything_is_written(
    dlrm: Command, tmp_path: Path, job_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "far.toml"
    document.write_text(f'job = "{Path(job_file).name}"\n')
    monkeypatch.chdir(tmp_path)
    ended = dlrm("sweep", str(document), "--service", "auto")
    assert (ended.code, "no service found" in ended.err) == (1, True)
    assert not list(tmp_path.glob("runs/*/results.jsonl"))


def answer(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `dlrm` at a terminal whose user types `text`."""
    terminal, stdin = pty.openpty()
    try:
        os.write(terminal, text.encode())
        return subprocess.run(command(*arguments), stdin=stdin, capture_output=True, text=True, check=False)
    finally:
        os.close(terminal)
        os.close(stdin)


def test_a_terminal_is_shown_what_a_deletion_loses_and_asked(dlrm: Command, job_file: str) -> None:
    job, other = (dlrm("submit", job_file, "--follow").out.strip() for _ in range(2))
    run_directory = json.loads(dlrm("show", job, "--json").out)["run_directory"]
    for step in (5, 10):
        save_checkpoint({"run_directory": run_directory}, step, num_bytes=1500)
    refused = answer("n\n", "delete", job, other)
    assert refused.returncode == 1
    lines = [line.split() for line in refused.stderr.splitlines()]
    assert [job, "first", "FAILED", "2,", "3.0", "kB"] in [line[:6] for line in lines]
    assert "Delete 2 jobs for good?" in refused.stderr
    assert is_there(job)
    agreed = answer("y\n", "delete", job, other)
    assert (agreed.returncode, agreed.stdout) == (0, f"{job} deleted\n{other} deleted\n")
    assert not is_there(job)


def test_where_nobody_can_be_asked_consent_is_an_option_and_one_refused_job_keeps_all(
    dlrm: Command, job_file: str
) -> None:
    job = dlrm("submit", job_file, "--follow").out.strip()
    refused = dlrm("delete", job)
    assert (refused.code, refused.err.count("\n"), "--yes" in refused.err) == (2, 1, True)
    with Client() as client:
        waiting = client.submit({**DOCUMENT, "max_restarts": 9}).id
    for other, said in ((waiting, "only a job that has ended can be deleted"), ("job_nowhere", "there is no job")):
        refused = dlrm("delete", job, other, "--yes")
        assert (refused.code, said in refused.err) == (2, True)
    assert is_there(job)
    assert dlrm("delete", job, "--yes").out == f"{job} deleted\n"
    assert not is_there(job)


def test_a_created_key_prints_its_secret_alone_on_stdout(dlrm: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = dlrm("keys", "create", "laptop", "--owner", "ann", "--role", "submitter", "--expires-in-days", "90")
    assert ended.code == 0
    secret = ended.out.removesuffix("\n")
    assert secret.startswith("dlrm_")
    assert "submitter of owner ann, expires 20" in ended.err
    assert "shown only now" in ended.err
    monkeypatch.setenv("DLRM_API_KEY", secret)
    own = list_keys(dlrm)
    assert [(key["owner"], key["name"], key["role"]) for key in own] == [("ann", "laptop", "submitter")]
    assert secret not in str(own)


def test_a_revoked_key_is_listed_only_where_all_are_and_is_refused(
    dlrm: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = json.loads(dlrm("keys", "create", "old", "--role", "viewer", "--json").out)
    assert (created["owner"], created["expires_at"]) == ("old", None)
    key_id = created["id"]
    revoked = dlrm("keys", "revoke", key_id)
    assert (revoked.code, revoked.out) == (0, f"{key_id} revoked\n")
    assert key_id not in {key["id"] for key in list_keys(dlrm)}
    lines = dlrm("keys", "list", "--all").out.splitlines()
    (line,) = [line.split() for line in lines if line.startswith(key_id)]
    assert line == [key_id, "old", "old", "viewer", "revoked", "-"]
    admin = next(key["id"] for key in list_keys(dlrm) if key["role"] == "admin")
    last = dlrm("keys", "revoke", admin)
    assert (last.code, "this is the last admin key; create another one first" in last.err) == (2, True)
    monkeypatch.setenv("DLRM_API_KEY", created["key"])
    ended = dlrm("keys", "list")
    assert (ended.code, "error: this API key was revoked at" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=-5), "0 min"),
        (timedelta(minutes=59, seconds=59), "59 min"),
        (timedelta(hours=47, minutes=59), "47 h"),
        (timedelta(days=400), "400 d"),
    ],
)
def test_the_age_of_a_use_is_short(age: timedelta, text: str) -> None:
    now = datetime.now(UTC)
    assert format_time_since(now - age, now) == text


def test_a_login_link_signs_a_browser_in_once(dlrm: Command) -> None:
    ended = dlrm("login-link", "--role", "viewer", "--owner", "ann", "--minutes", "30")
    assert ended.code == 0
    assert "viewer of owner ann; works once, until" in ended.err
    url, token = ended.out.strip().split("/signin#token=")
    with httpx.Client(base_url=url) as browser:
        assert browser.post("/v1/session", json={"token": token}).status_code == 204
        assert browser.get("/v1/jobs").status_code == 200
        assert browser.get("/v1/audit").status_code == 403
        assert browser.post("/v1/session", json={"token": token}).status_code == 401
    link = json.loads(dlrm("login-link", "--json").out)
    assert (link["role"], link["owner"], "/signin#token=" in link["url"]) == ("admin", "admin", True)


def test_who_may_not_is_told_which_role_it_takes(dlrm: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client() as client:
        secret = client.create_key("reader", "viewer").key or ""
    monkeypatch.setenv("DLRM_API_KEY", secret)
    needed = "this requires the role admin; reader has the role viewer: use another key (DLRM_API_KEY)"
    for arguments, said in (
        (("keys", "create", "x", "--role", "viewer"), needed),
        (("keys", "revoke", "key_1"), needed),
        (("login-link", "--role", "admin"), "a link for the role admin requires a key of that role"),
    ):
        ended = dlrm(*arguments)
        assert (ended.code, said in ended.err) == (2, True)


def test_without_a_service_a_command_fails(dlrm: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("DLRM_API_KEY", "dlrm_x")
    ended = dlrm("login-link")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert ended.err.startswith("error: the service at http://127.0.0.1:9")


def test_a_dry_run_of_retention_lists_what_would_go_and_nothing_goes(dlrm: Command, job_file: str) -> None:
    job_id = dlrm("submit", job_file, "--follow").out.strip()
    rules = dlrm("retention")
    assert (rules.code, "for ever" in rules.out) == (0, True)
    shown = dlrm("retention", "--dry-run", "--days", "0")
    assert [line.split()[-1] for line in shown.out.splitlines() if job_id in line] == ["age"]
    assert "would go; nothing was removed" in shown.err
    assert json.loads(dlrm("retention", "--dry-run", "--json").out)["num_jobs"] == 0
    assert is_there(job_id)
    refused = dlrm("retention", "--days", "3")
    assert (refused.code, "--days: tries out a rule, so give --dry-run too" in refused.err) == (2, True)


def test_a_running_service_is_saved_and_not_replaced(
    dlrm: Command, job_file: str, state_directory: Path, tmp_path: Path
) -> None:
    job_id = dlrm("submit", job_file, "--follow").out.strip()
    saved = dlrm("backup", str(tmp_path / "saved"))
    assert (saved.code, saved.out.strip()) == (0, str(tmp_path / "saved"))
    again = dlrm("backup", str(tmp_path / "saved"))
    assert (again.code, "exists already; name a new directory" in again.err) == (1, True)
    refused = dlrm("restore", str(tmp_path / "saved"), "--force")
    assert (refused.code, f"is using {state_directory}" in refused.err) == (1, True)
    other = tmp_path / "other"
    restored = dlrm("restore", str(tmp_path / "saved"), "--state-directory", str(other))
    assert (restored.code, "jobs, as they were at" in restored.err) == (0, True)
    with closing(sqlite3.connect(other / "service.sqlite3")) as database:
        assert (job_id,) in database.execute("SELECT id FROM jobs").fetchall()
