"""A limit on the memory of a process, in a process of its own: it could not take a limit back."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are set on Linux alone")


def said_by(program: str) -> str:
    command = [sys.executable, "-c", f"from hostinfo.process_memory import limit_memory\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_memory_beyond_the_limit_is_an_error_and_below_it_none():
    program = """
limit_memory(2**26)
held = bytearray(2**25)
try:
    bytearray(2**27)
except MemoryError:
    print("refused")
"""
    assert said_by(program) == "refused"


def test_the_kernel_ends_a_limited_process_before_others():
    program = "limit_memory(2**26)\nprint(open('/proc/self/oom_score_adj').read())"
    assert said_by(program) == "1000"
