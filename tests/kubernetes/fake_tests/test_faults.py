"""Faults of connections and answers, as tests inject them."""

import time

import pytest
import urllib3
from kubernetes import client

from tests.kubernetes.fake import faults
from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.resources import CONFIG_MAPS
from tests.kubernetes.fake_tests.answers import refuse, send
from tests.kubernetes.fake_tests.test_watches import stream, take

PATH = "/api/v1/namespaces/default/configmaps"
BODY = {"metadata": {"name": "a"}, "data": {"k": "1"}}


def is_there(cluster: Cluster, name: str = "a") -> bool:
    """Whether a ConfigMap is in the store."""
    return cluster.api.find(CONFIG_MAPS, "default", name) is not None


@pytest.mark.parametrize("code", [401, 409, 410, 429, 500, 503, 504])
def test_a_call_is_refused_as_often_as_it_is_told(cluster: Cluster, code: int) -> None:
    cluster.faults.inject(faults.Answer(code, retry_after_seconds=3), "create", "configmaps", times=2)
    answers = [send(cluster, "POST", PATH, BODY) for _ in range(3)]
    assert [answer.status for answer in answers] == [code, code, 201]
    assert answers[0].json()["kind"] == "Status"
    assert answers[0].headers["Retry-After"] == "3"


def test_only_the_calls_that_are_meant_fail(cluster: Cluster) -> None:
    cluster.faults.inject(faults.Answer(500), "get", "configmaps", name="b", times=None)
    cluster.faults.inject(faults.Answer(500), "list", "pods", times=None, skip=1)
    send(cluster, "POST", PATH, BODY)
    assert send(cluster, "GET", f"{PATH}/a").status == 200
    assert send(cluster, "GET", f"{PATH}/b").status == 500
    assert send(cluster, "GET", "/api/v1/pods").status == 200
    assert send(cluster, "GET", "/api/v1/pods").status == 500
    cluster.faults.clear()
    assert send(cluster, "GET", "/api/v1/pods").status == 200


def test_a_proxy_may_answer_with_text(cluster: Cluster) -> None:
    cluster.faults.inject(faults.Answer(503, message="upstream connect error", is_plain_text=True))
    assert send(cluster, "GET", PATH).data == b"upstream connect error"


def test_a_lost_answer_leaves_the_deed_done(cluster: Cluster) -> None:
    cluster.faults.inject(faults.LoseAnswer(), "create", "configmaps")
    with pytest.raises(urllib3.exceptions.ProtocolError):
        send(cluster, "POST", PATH, BODY)
    assert is_there(cluster)
    assert [one.status for one in cluster.recorder.requests("create")] == [0]


def test_a_dropped_request_leaves_nothing(cluster: Cluster) -> None:
    cluster.faults.inject(faults.DropRequest(), "create", "configmaps")
    with pytest.raises(urllib3.exceptions.ProtocolError):
        send(cluster, "POST", PATH, BODY)
    assert not is_there(cluster)


def test_a_server_may_say_nothing_at_all(cluster: Cluster) -> None:
    cluster.faults.inject(faults.Hang(), "list", "configmaps", times=None)
    api = client.CoreV1Api(cluster.api_client())
    with pytest.raises(urllib3.exceptions.HTTPError):
        api.list_namespaced_config_map("default", _request_timeout=0.05)


def test_a_delay_comes_before_the_deed(cluster: Cluster) -> None:
    cluster.faults.inject(faults.Delay(0.05), "create", "configmaps")
    began_at = time.monotonic()
    send(cluster, "POST", PATH, BODY)
    assert time.monotonic() - began_at >= 0.05
    assert is_there(cluster)


def test_somebody_else_may_come_in_between(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", BODY)
    read = core.read_namespaced_config_map("a", "default")

    def change(_: object) -> None:
        cluster.api.modify(CONFIG_MAPS, "default", "a", lambda found: found["data"].update(other="1"))

    cluster.faults.inject(faults.Interfere(change), "update", "configmaps")
    assert refuse(lambda: core.replace_namespaced_config_map("a", "default", read))["reason"] == "Conflict"


def test_an_answer_may_break_off(cluster: Cluster) -> None:
    cluster.faults.inject(faults.TruncateAnswer(20), "list", "configmaps")
    with pytest.raises(urllib3.exceptions.ProtocolError):
        send(cluster, "GET", PATH)


def test_an_answer_may_trickle(cluster: Cluster) -> None:
    cluster.faults.inject(faults.SlowAnswer(num_bytes=50, pause_seconds=0.001), "list", "configmaps")
    assert send(cluster, "GET", PATH).json()["kind"] == "ConfigMapList"


def test_a_server_that_is_down_refuses_connections_and_comes_back_at_its_port(cluster: Cluster) -> None:
    events = stream(cluster, f"{PATH}?watch=true")
    take(events, 1)
    with cluster.refusing_connections():
        with pytest.raises(urllib3.exceptions.ProtocolError):
            next(events)
        with pytest.raises(urllib3.exceptions.NewConnectionError):
            send(cluster, "GET", PATH)
    assert send(cluster, "GET", PATH).status == 200


def test_a_watch_may_break_after_some_events(cluster: Cluster) -> None:
    cluster.faults.inject(faults.DropWatch(num_events=1))
    events = stream(cluster, f"{PATH}?watch=true")
    assert take(events, 1) == [("ADDED", "kube-root-ca.crt")]
    with pytest.raises(urllib3.exceptions.ProtocolError):
        next(events)


def test_a_watch_may_end_early_in_good_order(cluster: Cluster) -> None:
    cluster.faults.inject(faults.EndWatch())
    assert list(stream(cluster, f"{PATH}?watch=true")) == []


def test_a_watch_may_fall_silent(cluster: Cluster) -> None:
    cluster.faults.inject(faults.SilenceWatch())
    events = stream(cluster, f"{PATH}?watch=true")
    send(cluster, "POST", PATH, BODY)
    cluster.server.end_watches()
    assert list(events) == []


def test_a_watch_may_send_nothing_but_bookmarks(cluster: Cluster) -> None:
    cluster.faults.inject(faults.BookmarksOnly())
    events = stream(cluster, f"{PATH}?watch=true&allowWatchBookmarks=true")
    send(cluster, "POST", PATH, BODY)
    assert next(events)["type"] == "BOOKMARK"
    cluster.server.send_bookmarks()
    assert next(events)["type"] == "BOOKMARK"


def test_a_watch_may_tell_everything_twice(cluster: Cluster) -> None:
    cluster.faults.inject(faults.DuplicateEvents())
    events = stream(cluster, f"{PATH}?watch=true")
    assert take(events, 2) == [("ADDED", "kube-root-ca.crt")] * 2


def test_a_watch_may_expire_at_its_beginning_or_in_the_stream(cluster: Cluster) -> None:
    cluster.faults.inject(faults.Answer(410), "watch", "configmaps")
    assert send(cluster, "GET", f"{PATH}?watch=true").status == 410
    cluster.faults.inject(faults.ExpireWatch(num_events=1), "watch", "configmaps")
    added, error = list(stream(cluster, f"{PATH}?watch=true"))
    assert added["type"] == "ADDED"
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_line_of_a_watch_may_break_off(cluster: Cluster, ends_well: bool) -> None:
    cluster.faults.inject(faults.TruncateWatch(ends_well=ends_well))
    answer = urllib3.request(
        "GET",
        f"{cluster.url}{PATH}?watch=true",
        headers={"Authorization": f"Bearer {cluster.server.token}"},
        preload_content=False,
    )
    received = b""
    try:
        for piece in answer.stream():
            received += piece
        assert ends_well
    except urllib3.exceptions.ProtocolError:
        assert not ends_well
    assert received.startswith(b'{"type":"ADDED"')
    assert b"\n" not in received


def test_a_watch_may_trickle(cluster: Cluster) -> None:
    cluster.faults.inject(faults.SlowWatch(num_bytes=40, pause_seconds=0.001))
    assert take(stream(cluster, f"{PATH}?watch=true"), 1) == [("ADDED", "kube-root-ca.crt")]


def test_faults_do_not_touch_the_controllers(cluster: Cluster) -> None:
    cluster.faults.inject(faults.Answer(500), times=None)
    cluster.add_namespace("team")
    cluster.settle()
    assert cluster.api.find(CONFIG_MAPS, "team", "kube-root-ca.crt") is not None
