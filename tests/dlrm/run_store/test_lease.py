"""The lease of a run: one holder at a time."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from dlrm.run_store.lease import Holder, LeaseHeldError, LeaseLostError, LeaseTimes, RunLease
from dlrm.run_store.objects import ObjectStore, RequestError, RequestLimits
from hostinfo.process_identity import ProcessIdentity
from tests.bucket.server import Bucket
from tests.dlrm.run_store.runs import RUN
from tests.patience import wait_until

QUICK = LeaseTimes(valid_seconds=3.0, renew_seconds=0.3, margin_seconds=0.5, retry_seconds=0.2)
LAPSING = replace(QUICK, margin_seconds=2.0)
"""The lease lapses after one second without a renewal."""
LIMITS = RequestLimits(silent_seconds=1.0, num_tries=2)
ELSEWHERE = Holder("far", ProcessIdentity("another boot", 7, 1), 0.0)


def make_lease(host: str | None = None, times: LeaseTimes = QUICK) -> RunLease:
    """Make a lease of this process, or of one of another machine."""
    return RunLease(RUN, times, LIMITS, None if host is None else replace(ELSEWHERE, host=host))


def test_a_second_launch_is_refused_and_told_who_is_there(bucket: Bucket):
    first = make_lease("far")
    first.acquire()
    with pytest.raises(LeaseHeldError, match=r"s3://bucket/runs/run is in use by process 7 on far, since 1970-01-01"):
        make_lease().acquire()
    first.require()
    first.release()
    assert bucket.list_names("runs/run/lease") == []


def test_a_lease_that_was_released_is_free_at_once(bucket: Bucket):
    for host in ("near", "far"):
        lease = make_lease(host)
        lease.acquire()
        lease.release()


def test_a_lease_whose_time_is_over_is_taken_over(bucket: Bucket):
    ObjectStore(RUN).put_bytes("lease/old.json", ELSEWHERE.to_bytes())
    told: list[str] = []
    lease = make_lease(times=replace(QUICK, valid_seconds=1.5))
    lease.acquire(told.append)
    assert "process 7 on far" in told[0]
    assert len(bucket.list_names("runs/run/lease")) == 1
    lease.release()


def test_the_lease_of_an_ended_process_of_this_machine_is_taken_at_once(bucket: Bucket):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = ProcessIdentity.of_process(child.pid)
    assert not process.is_known_to_have_ended()
    child.kill()
    child.wait()
    assert process.is_known_to_have_ended()
    ObjectStore(RUN).put_bytes("lease/old.json", Holder("here", process, 0.0).to_bytes())
    lease = RunLease(RUN, LeaseTimes(), LIMITS)
    lease.acquire(pytest.fail)
    lease.release()


@pytest.mark.slow
def test_a_lease_that_is_no_lease_is_waited_for_and_removed(bucket: Bucket):
    ObjectStore(RUN).put_bytes("lease/odd.json", b"no JSON")
    lease = make_lease()
    lease.acquire()
    lease.release()


def test_of_many_launches_at_once_never_two_have_the_lease(bucket: Bucket):
    bucket.proxy.failing_fraction = 0.05
    holders: list[str] = []
    refused: list[str] = []
    most = [0]

    def launch(host: str) -> None:
        lease = make_lease(host)
        while True:
            try:
                lease.acquire()
                break
            except LeaseHeldError:
                refused.append(host)
                return
            except RequestError:
                continue
        holders.append(host)
        most[0] = max(most[0], len(holders))
        time.sleep(0.6)
        holders.remove(host)
        lease.release()

    threads = [threading.Thread(target=launch, args=(f"host{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert len(refused) < 4


def test_a_holder_that_was_cut_off_too_long_writes_nothing_and_gives_way(bucket: Bucket):
    cut_off = make_lease("far", LAPSING)
    cut_off.acquire()
    bucket.proxy.state = "cut"
    wait_until(lambda: _raises(cut_off, RequestError))
    # Another one reaches the store, without the proxy, and takes over once the time is over.
    claim = Holder("near", ProcessIdentity("a third boot", 8, 1), 0.0)
    bucket.write("runs/run/lease/new.json", claim.to_bytes())
    bucket.proxy.state = "well"
    wait_until(lambda: cut_off.lost is not None)
    with pytest.raises(LeaseLostError, match="was taken over by process 8 on near"):
        cut_off.require()
    cut_off.release()
    assert bucket.list_names("runs/run/lease") == ["runs/run/lease/new.json"]


def test_a_holder_that_was_cut_off_goes_on_where_nobody_else_came(bucket: Bucket):
    lease = make_lease("far", LAPSING)
    lease.acquire()
    bucket.proxy.state = "cut"
    wait_until(lambda: _raises(lease, RequestError))
    bucket.proxy.state = "well"
    wait_until(lambda: not _raises(lease, RequestError))
    lease.release()


def test_a_renewal_that_arrives_too_late_takes_nothing_back(bucket: Bucket, monkeypatch: pytest.MonkeyPatch):
    times = replace(QUICK, renew_seconds=1000.0, margin_seconds=1.5)
    slow = make_lease("far", times)
    slow.acquire()
    put = ObjectStore.put_bytes

    def put_late(store: ObjectStore, name: str, content: bytes) -> None:
        # Meanwhile its time ends, and another one takes over just before this arrives.
        time.sleep(times.valid_seconds - times.margin_seconds)
        bucket.write("runs/run/lease/new.json", replace(ELSEWHERE, host="near").to_bytes())
        put(store, name, content)

    monkeypatch.setattr(ObjectStore, "put_bytes", put_late)
    slow.require()
    slow._renew()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(LeaseLostError, match="was taken over by process 7 on near"):
        slow.require()


def _raises(lease: RunLease, error: type[Exception]) -> bool:
    try:
        lease.require()
    except error:
        return True
    return False
