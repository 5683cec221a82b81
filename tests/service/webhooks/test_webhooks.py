"""Webhooks: what is sent of a change of state, by whom it can be checked, and what becomes of it if nobody answers."""

import asyncio
import itertools
import socket
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, update

from service.access.principal import Role
from service.app import create_services
from service.http.request_origin import parse_networks
from service.settings import Settings
from service.times import now
from service.webhooks import post, sender
from service.webhooks.models import Delivery, Webhook
from service.webhooks.post import is_allowed
from tests.patience import wait_until
from tests.service.api import Api, make_document, serve_api
from tests.service.databases import on_both_databases, on_sqlite
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.keys.holders import sign_in
from tests.service.webhooks.receiver import Receiver, run_receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with run_receiver() as running:
        yield running


@pytest.fixture
def open_settings(settings: Settings) -> Settings:
    """Settings that let webhooks send to this machine."""
    return settings.model_copy(update={"webhook_networks": "127.0.0.0/8"})


@pytest.fixture
def api(open_settings: Settings) -> Iterator[Api]:
    with serve_api(open_settings, runs_control_loop=False) as running:
        yield running


def add_webhook(api: Api, url: str, **fields: Any) -> dict[str, Any]:
    response = api.submitter.post("/v1/webhooks", json={"url": url, **fields})
    assert response.status_code == 201, response.text
    return response.json()


def cancel(api: Api, **changes: Any) -> str:
    """Submit a job and cancel it, which makes two changes of state."""
    job_id = api.submit(**changes)["id"]
    assert api.submitter.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
    return job_id


def send(api: Api) -> None:
    api.services.webhook_sender.run_once()


def find_webhook(api: Api, webhook_id: str) -> dict[str, Any]:
    [found] = [one for one in api.viewer.get("/v1/webhooks").json()["items"] if one["id"] == webhook_id]
    return found


def make_due(api: Api) -> None:
    """Let the wait until the next try be over."""
    with api.services.database.write() as session:
        session.execute(update(Delivery).values(next_try_at=now()))


@on_both_databases
def test_a_change_of_state_is_sent_once_and_signed(api: Api, receiver: Receiver) -> None:
    webhook = add_webhook(api, f"{receiver.url}/hook?x=1")
    job_id = cancel(api, name="ads", labels={"team": "ads"})
    for _ in range(2):
        send(api)
    receiver.check_signatures(webhook["secret"])
    [body] = receiver.bodies
    assert body["type"] == "job.state"
    assert {**body["data"], "event_id": ""} == {
        "job_id": job_id,
        "name": "ads",
        "owner": "team",
        "labels": {"team": "ads"},
        "from_state": "QUEUED",
        "state": "CANCELLED",
        "reason": "user_cancelled",
        "attempt": None,
        "event_id": "",
        "path": f"/v1/jobs/{job_id}",
    }
    shown = find_webhook(api, webhook["id"])
    assert (shown["secret"], shown["last_result"], shown["num_waiting"]) == (None, "204", 0)


def test_only_chosen_states_labels_and_owners_are_sent(api: Api, receiver: Receiver) -> None:
    add_webhook(api, receiver.url, states=["QUEUED"], labels={"team": "ads"})
    ours = cancel(api, labels={"team": "ads", "more": "yes"})
    cancel(api, labels={"team": "news"})
    with make_key(api, "other", Role.SUBMITTER) as other:
        assert other.post("/v1/jobs", json=make_document(labels={"team": "ads"})).is_success
        assert other.get("/v1/webhooks").json()["items"] == []
        refused = other.post("/v1/webhooks", json={"url": receiver.url, "owner": "team"})
        check_problem(refused, 403, "forbidden")
    send(api)
    assert [body["data"]["job_id"] for body in receiver.bodies] == [ours]


def test_an_admin_hears_of_the_jobs_of_all_owners(api: Api, receiver: Receiver) -> None:
    with make_key(api, "root", Role.ADMIN) as root:
        assert root.post("/v1/webhooks", json={"url": receiver.url, "owner": "*"}).status_code == 201
    cancel(api)
    send(api)
    assert [body["data"]["owner"] for body in receiver.bodies] == ["team"]


@on_both_databases
def test_a_failed_delivery_is_tried_again_with_the_same_id(api: Api, receiver: Receiver) -> None:
    receiver.statuses = [500, 302, 204]
    webhook = add_webhook(api, receiver.url)
    cancel(api)
    waits: list[float] = []
    for _ in range(2):
        send(api)
        send(api)
        with api.services.database.read() as session:
            delivery = session.scalars(select(Delivery)).one()
        waits.append(round((delivery.next_try_at - now()).total_seconds()))
        make_due(api)
    assert waits == [5, 10]
    assert find_webhook(api, webhook["id"])["last_result"] == "the answer was 302"
    send(api)
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    assert len(receiver.received) == 3
    assert find_webhook(api, webhook["id"])["num_waiting"] == 0


def test_what_changes_while_the_service_restarts_is_sent(open_settings: Settings, receiver: Receiver) -> None:
    receiver.statuses = [500, 204]
    with serve_api(open_settings, runs_control_loop=False) as first:
        webhook = add_webhook(first, receiver.url)
        jobs = [cancel(first)]
        send(first)
        jobs.append(cancel(first))
    services = create_services(open_settings)
    with services.database.write() as session:
        session.execute(update(Delivery).values(next_try_at=now()))
    services.webhook_sender.run_once()
    services.key_uses.close()
    services.database.close()
    assert [body["data"]["job_id"] for body in receiver.bodies[1:]] == jobs
    receiver.check_signatures(webhook["secret"])


def test_the_end_of_a_job_is_sent_while_the_service_runs(open_settings: Settings, receiver: Receiver) -> None:
    with serve_api(open_settings, runs_control_loop=True) as live:
        add_webhook(live, receiver.url, states=["RUNNING", "SUCCEEDED"])
        job_id = live.submit(behaviour="succeed")["id"]
        wait_until(lambda: len(receiver.received) == 2)
        assert [(body["data"]["job_id"], body["data"]["state"]) for body in receiver.bodies] == [
            (job_id, "RUNNING"),
            (job_id, "SUCCEEDED"),
        ]


def test_a_test_is_sent_and_a_receiver_that_is_gone_gets_nothing_more(api: Api, receiver: Receiver) -> None:
    receiver.statuses = [204, 410]
    webhook = add_webhook(api, receiver.url)
    assert api.submitter.post(f"/v1/webhooks/{webhook['id']}/test").status_code == 202
    send(api)
    assert receiver.bodies[0]["type"] == "webhook.test"
    for _ in range(2):
        cancel(api)
        send(api)
    assert len(receiver.received) == 2
    assert find_webhook(api, webhook["id"])["stopped_because"] == "the receiver answered 410"
    check_problem(api.submitter.post(f"/v1/webhooks/{webhook['id']}/test"), 409, "conflict")
    assert api.submitter.delete(f"/v1/webhooks/{webhook['id']}").status_code == 204
    check_problem(api.submitter.delete(f"/v1/webhooks/{webhook['id']}"), 404, "not-found")


def test_a_webhook_stops_with_the_key_that_made_it(api: Api, receiver: Receiver) -> None:
    created = api.services.keys.create("mine", Role.SUBMITTER, owner="team")
    with api.make_client(created.key) as client:
        webhook_id = client.post("/v1/webhooks", json={"url": receiver.url}).json()["id"]
    api.services.keys.revoke(created.id)
    cancel(api)
    send(api)
    assert receiver.received == []
    assert "was revoked" in find_webhook(api, webhook_id)["stopped_because"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"])
def test_an_address_that_is_not_public_is_refused_at_once(settings: Settings, host: str) -> None:
    with serve_api(settings, runs_control_loop=False) as closed:
        refused = closed.submitter.post("/v1/webhooks", json={"url": f"http://{host}/"})
    assert refused.status_code == 422
    assert "DLRM_WEBHOOK_NETWORKS" in refused.json()["detail"]


def test_nothing_is_sent_to_an_address_that_is_not_public(settings: Settings, receiver: Receiver) -> None:
    with serve_api(settings, runs_control_loop=False) as closed:
        port = receiver.url.rpartition(":")[2]
        hosts = ("127.0.0.1", "localhost", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0")
        ids = [add_webhook(closed, "https://hooks.example.com")["id"] for _ in hosts]
        with closed.services.database.write() as session:
            # As if their networks had been allowed once.
            for webhook_id, host in zip(ids, hosts, strict=True):
                session.execute(update(Webhook).where(Webhook.id == webhook_id).values(url=f"http://{host}:{port}/"))
        cancel(closed)
        send(closed)
        assert receiver.received == []
        for webhook_id in ids:
            assert "is not a public one" in find_webhook(closed, webhook_id)["last_result"]


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        *((address, False) for address in ("10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254")),
        *((address, False) for address in ("127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "fd00:ec2::254")),
        *((address, False) for address in ("::1", "fe80::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::")),
        *((address, False) for address in ("168.63.129.16", "::ffff:168.63.129.16", "fec0::1", "5f00::1", "3fff::1")),
    ],
)
def test_addresses_that_lead_into_a_private_network_are_refused(address: str, is_public: bool) -> None:
    assert is_allowed(ip_address(address), []) == is_public
    assert is_allowed(ip_address("10.1.2.3"), parse_networks("10.0.0.0/8, fd00::/8"))


def test_a_name_is_looked_up_once_and_the_request_goes_to_that_address(
    api: Api, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(receiver.url.rpartition(":")[2])
    asked: list[object] = []

    async def look_up(_: object, host: str, port: int, **__: object) -> list[Any]:
        # The second answer would lead elsewhere.
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "10.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    add_webhook(api, f"http://hooks.example:{port}/in")
    cancel(api)
    send(api)
    assert asked[0] == "hooks.example"
    [(headers, _)] = receiver.received
    assert headers["host"] == f"hooks.example:{port}"


def test_a_receiver_that_does_not_answer_is_left_after_some_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "MAX_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        webhook = add_webhook(api, f"http://127.0.0.1:{silent.getsockname()[1]}")
        cancel(api)
        send(api)
    assert find_webhook(api, webhook["id"])["last_result"].startswith("no answer")


@on_sqlite
def test_a_receiver_that_does_not_answer_keeps_others_waiting_for_nothing(
    api: Api, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "MAX_SECONDS", 3600.0)
    monkeypatch.setattr(api.services.webhook_sender, "_interval_seconds", 0.01)
    assert api.services.leadership.acquire()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        add_webhook(api, f"http://127.0.0.1:{silent.getsockname()[1]}")
        add_webhook(api, receiver.url)
        cancel(api)
        api.services.webhook_sender.start()
        wait_until(lambda: len(receiver.received) == 1)
        cancel(api)
        wait_until(lambda: len(receiver.received) == 2)
        api.services.webhook_sender.stop()


@on_sqlite
def test_a_turn_ends_after_some_seconds_and_the_next_goes_on(
    api: Api, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_webhook(api, receiver.url)
    for _ in range(3):
        cancel(api)
    times = itertools.count()
    monkeypatch.setattr(sender, "MAX_TURN_SECONDS", 2.0)
    monkeypatch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: next(times)))
    send(api)
    assert len(receiver.received) == 1
    send(api)
    assert len(receiver.received) == 2


@on_sqlite
def test_after_a_failure_all_that_is_due_waits_and_what_is_too_old_is_given_up(api: Api, receiver: Receiver) -> None:
    receiver.statuses = [500]
    webhook = add_webhook(api, receiver.url)
    for _ in range(3):
        cancel(api)
    send(api)
    send(api)
    assert len(receiver.received) == 1
    with api.services.database.write() as session:
        waiting = session.scalars(select(Delivery).order_by(Delivery.id)).all()
        assert len({delivery.next_try_at for delivery in waiting}) == 1
        assert [delivery.num_tries for delivery in waiting] == [1, 0, 0]
        session.execute(update(Delivery).values(created_at=now() - timedelta(days=1), next_try_at=now()))
    send(api)
    assert find_webhook(api, webhook["id"])["num_waiting"] == 0


@on_sqlite
def test_a_browser_makes_no_webhook_since_it_would_outlive_its_session(api: Api) -> None:
    with sign_in(api, key=api.services.keys.create("mine", Role.SUBMITTER, owner="team").key) as browser:
        refused = browser.post("/v1/webhooks", json={"url": "https://hooks.example"})
    check_problem(refused, 403, "forbidden")
    assert "Authorization: Bearer" in refused.json()["detail"]


@pytest.mark.parametrize(
    "url",
    ["ftp://x.org", "https://", "hooks", "https://u:p@x.org", "https://x.org/#a", "https://x.org/ b", "http://[::"],
)
def test_a_url_that_no_request_can_have_is_refused_with_its_field(api: Api, url: str) -> None:
    refused = api.submitter.post("/v1/webhooks", json={"url": url})
    assert [error["field"] for error in refused.json()["errors"]] == ["url"]


def test_an_owner_has_a_limited_number_of_webhooks(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.webhooks.service.MAX_WEBHOOKS", 1)
    add_webhook(api, "https://hooks.example")
    check_problem(api.submitter.post("/v1/webhooks", json={"url": "https://hooks.example"}), 409, "conflict")
