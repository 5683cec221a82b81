"""A control loop that hangs."""

import threading

import httpx
import pytest

from service.store.models import Job
from tests.patience import wait_until
from tests.service.api import Api


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the leases of the service, and with them the time after which its loop counts as stuck."""
    monkeypatch.setattr("service.leader.leadership.LEASE_SECONDS", 0.5)


def test_a_service_whose_loop_hangs_is_not_ready_and_lets_another_one_lead(
    short_leases: None, live_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_ready() -> httpx.Response:
        return live_api.anonymous.get("/readyz")

    services, is_over = live_api.services, threading.Event()
    wait_until(lambda: get_ready().status_code == 200)
    monkeypatch.setattr(services.control.reconciler, "list_watched", lambda: list[Job]() if is_over.wait() else None)
    try:
        wait_until(lambda: services.leadership.is_stuck and get_ready().status_code == 503)
        if not services.database.is_sqlite:
            wait_until(lambda: not services.leadership.is_held)
    finally:
        is_over.set()
    wait_until(lambda: get_ready().status_code == 200)
