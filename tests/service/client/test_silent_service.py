"""The client and its commands with a service that accepts connections and never answers, as one that is stopped."""

import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.commands import jobs as commands
from cli.commands.service_access import MAX_WAIT_SECONDS, connect
from service.client import Client, Patience, ServiceAwayError, ServiceUnreachableError, patience, waiting
from tests.cli.conftest import dlrm as dlrm  # the fixture
from tests.service.client.test_retries import JOB, serve_statuses

WAIT_SECONDS = 0.3


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a service that is silent, at which silence is soon told."""
    monkeypatch.setattr(waiting, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(patience, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(patience, "MIN_ANSWER_SECONDS", 0.1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class Told(list[tuple[str, float]]):
    """What was told of silence."""

    def __call__(self, url: str, seconds_left: float) -> None:
        self.append((url, seconds_left))


def test_all_tries_of_a_request_together_wait_no_longer_than_one_may(url: str) -> None:
    told = Told()
    with (
        Client(url, "dlrm_key", WAIT_SECONDS, told) as client,
        pytest.raises(ServiceUnreachableError, match=r"does not answer \(nothing for 0 s\)"),
    ):
        client.job("job_1")
    # Were there two tries, the second one would have been told of, too.
    ((told_url, seconds_left),) = told
    assert told_url == url
    assert 0.0 < seconds_left < WAIT_SECONDS


def test_nothing_is_told_of_a_service_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENCE_SECONDS", 60.0)
    told = Told()
    with serve_statuses([200]) as (url, _), Client(url, "dlrm_key", on_silence=told) as client:
        assert client.job("job_1").id == JOB["id"]
    assert told == []


def test_a_follower_is_told_before_the_first_try_ends_and_gives_up_when_its_patience_does(url: str) -> None:
    told: list[ServiceAwayError] = []
    begin = datetime.now(UTC)
    with (
        # One try would last longer than the test may.
        Client(url, "dlrm_key", timeout_seconds=3600.0) as client,
        pytest.raises(ServiceAwayError, match=r"does not answer since .*nothing for 0 s.*job continues") as given_up,
    ):
        list(client.follow("job_1", 0.0, Patience(WAIT_SECONDS, told.append)))
    (away,) = told
    assert away.since == given_up.value.since
    assert away.since - begin < timedelta(seconds=WAIT_SECONDS)


def test_a_command_says_whom_it_waits_for_and_then_gives_up(
    url: str, monkeypatch: pytest.MonkeyPatch, dlrm: Callable[..., Any]
) -> None:
    assert MAX_WAIT_SECONDS <= 30.0
    monkeypatch.setattr(commands, "connect", lambda: connect(WAIT_SECONDS))
    monkeypatch.setenv("DLRM_URL", url)
    monkeypatch.setenv("DLRM_API_KEY", "dlrm_secret\n")
    ended = dlrm("jobs")
    assert ended.code == 1
    first, second = ended.err.splitlines()
    assert first == f"waiting for the service at {url} for up to 0 s"
    assert second.startswith(f"error: the service at {url} does not answer (nothing for 0 s)")
    assert "dlrm_secret" not in ended.err
