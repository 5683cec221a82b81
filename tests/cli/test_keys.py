"""`dlrm keys` and `dlrm login-link` against a real service."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.demo.service_process import run_service
from cli.render.job_tables import format_time_since
from service.client import Client

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
Dlrm = Callable[..., Any]


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


def list_keys(dlrm: Dlrm, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dlrm("keys", "list", "--json", *options).out.splitlines()]


def test_a_created_key_prints_its_secret_alone_on_stdout(dlrm: Dlrm, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_owner_of_a_key_is_its_name_unless_one_is_given(dlrm: Dlrm) -> None:
    created = json.loads(dlrm("keys", "create", "nightly", "--role", "viewer", "--json").out)
    assert (created["owner"], created["expires_at"]) == ("nightly", None)
    assert created["key"].startswith("dlrm_")


def test_a_revoked_key_is_listed_only_where_all_are(dlrm: Dlrm) -> None:
    key_id = json.loads(dlrm("keys", "create", "old", "--role", "viewer", "--json").out)["id"]
    revoked = dlrm("keys", "revoke", key_id)
    assert (revoked.code, revoked.out) == (0, f"{key_id} revoked\n")
    assert key_id not in {key["id"] for key in list_keys(dlrm)}
    assert key_id in {key["id"] for key in list_keys(dlrm, "--all")}
    lines = dlrm("keys", "list", "--all").out.splitlines()
    assert next(line.split() for line in lines if line.startswith(key_id)) == [
        *(key_id, "old", "old", "viewer"),
        *("revoked", "-"),
    ]


def test_the_list_has_a_line_per_key_that_fits_80_columns(dlrm: Dlrm, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 63
    dlrm("keys", "create", long, "--owner", f"o{long[1:]}", "--role", "submitter", "--expires-in-days", "3650")
    piped = dlrm("keys", "list").out.splitlines()
    assert any(long in line for line in piped)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")  # taken for a terminal
    monkeypatch.setenv("TERM", "dumb")  # without colours
    at_terminal = dlrm("keys", "list").out.splitlines()
    assert len(at_terminal) == len(piped)
    assert max(len(line.rstrip()) for line in at_terminal) <= 80
    assert at_terminal[0].split() == ["id", "owner", "name", "role", "expires", "used"]
    assert any("xxx…" in line and "submitter" in line for line in at_terminal)
    admin = next(line.split() for line in at_terminal if " admin " in line)
    assert admin[1:4] == ["admin", "admin", "admin"]
    assert admin[4] == "never"


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


def test_a_login_link_signs_a_browser_in_once(dlrm: Dlrm) -> None:
    ended = dlrm("login-link", "--role", "viewer", "--owner", "ann", "--minutes", "30")
    assert ended.code == 0
    assert "viewer of owner ann; works once, until" in ended.err
    url, token = ended.out.strip().split("/signin#token=")
    with httpx.Client(base_url=url) as browser:
        assert browser.post("/v1/session", json={"token": token}).status_code == 204
        assert browser.get("/v1/jobs").status_code == 200
        assert browser.get("/v1/audit").status_code == 403
        assert browser.post("/v1/session", json={"token": token}).status_code == 401


def test_a_login_link_is_for_programs_too(dlrm: Dlrm) -> None:
    link = json.loads(dlrm("login-link", "--json").out)
    assert (link["role"], link["owner"]) == ("admin", "admin")
    assert "/signin#token=" in link["url"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("keys", "create", "a b", "--role", "viewer"), "name: "),
        (("keys", "create", "x", "--role", "viewer", "--owner", "-"), "owner: "),
        (("keys", "revoke", "key_nowhere"), "there is no key key_nowhere"),
        (("keys", "revoke", "key/1"), "KEY_ID: this is not the id of a key"),
        (("login-link", "--owner", "a b"), "owner: "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(dlrm: Dlrm, arguments: tuple[str, ...], message: str) -> None:
    ended = dlrm(*arguments)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith("error: ")
    assert message in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("keys", "create", "x", "--role", "king"),
        ("keys", "create", "x", "--role", "viewer", "--expires-in-days", "0"),
        ("login-link", "--minutes", "1441"),
    ],
)
def test_an_option_with_a_wrong_value_ends_in_exit_code_2(dlrm: Dlrm, arguments: tuple[str, ...]) -> None:
    assert dlrm(*arguments).code == 2


def test_a_secret_in_place_of_an_id_is_not_shown_again(dlrm: Dlrm) -> None:
    ended = dlrm("keys", "revoke", "dlrm_secret")
    assert ended.code == 2
    assert "dlrm_secret" not in ended.err


def test_a_taken_name_and_the_last_admin_key_are_refused_with_what_to_do(dlrm: Dlrm) -> None:
    taken = dlrm("keys", "create", "admin", "--role", "viewer")
    assert taken.code == 2
    assert "admin already has a key named admin; choose another name, or revoke that key first" in taken.err
    admin = next(key["id"] for key in list_keys(dlrm) if key["role"] == "admin")
    last = dlrm("keys", "revoke", admin)
    assert last.code == 2
    assert "this is the last admin key; create another one first" in last.err


def test_who_may_not_is_told_which_role_it_takes(dlrm: Dlrm, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client() as client:
        secret = client.create_key("reader", "viewer").key or ""
    monkeypatch.setenv("DLRM_API_KEY", secret)
    for arguments in (("keys", "create", "x", "--role", "viewer"), ("keys", "revoke", "key_1")):
        ended = dlrm(*arguments)
        assert ended.code == 2
        assert "this requires the role admin; reader has the role viewer: use another key (DLRM_API_KEY)" in ended.err
    ended = dlrm("login-link", "--role", "admin")
    assert ended.code == 2
    assert "a link for the role admin requires a key of that role" in ended.err


def test_a_revoked_key_of_the_command_line_is_said_to_be_one(dlrm: Dlrm, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client() as client:
        key = client.create_key("gone", "admin")
        client.revoke_key(key.id)
    monkeypatch.setenv("DLRM_API_KEY", key.key or "")
    ended = dlrm("keys", "list")
    assert ended.code == 2
    assert "error: this API key was revoked at" in ended.err


def test_without_a_service_the_command_fails(dlrm: Dlrm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("DLRM_API_KEY", "dlrm_x")
    assert dlrm("login-link").code == 1
