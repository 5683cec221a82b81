"""Identity of processes."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from hostinfo.process_identity import ProcessIdentity


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a name that is hard to read."""
    text = "open('/proc/self/comm', 'w').write('a ) b (c'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_that_has_ended_is_known_to_have_ended(child: subprocess.Popen[bytes]):
    identity = ProcessIdentity.of_process(child.pid)
    assert not identity.is_known_to_have_ended()
    child.kill()
    child.wait()
    assert identity.is_known_to_have_ended()


def test_a_process_that_waits_for_its_parent_has_ended(child: subprocess.Popen[bytes]):
    identity = ProcessIdentity.of_process(child.pid)
    child.kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert identity.is_known_to_have_ended()


def test_another_process_with_the_same_number_is_another_one(child: subprocess.Popen[bytes]):
    identity = ProcessIdentity.of_process(child.pid)
    assert ProcessIdentity(identity.space, identity.pid, identity.start_ticks - 1).is_known_to_have_ended()
    assert not ProcessIdentity("elsewhere", identity.pid, 0).is_known_to_have_ended()


def test_a_clock_that_is_set_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    identity = ProcessIdentity.of_self()
    boot_time = psutil._pslinux.boot_time  # pyright: ignore
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_time() + 5.0)
    assert not identity.is_known_to_have_ended()
