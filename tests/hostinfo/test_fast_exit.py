import subprocess
import sys

PROGRAM = """
import atexit, sys
from hostinfo.fast_exit import skip_last_collection

class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("collected", flush=True)

kept = Garbage()
atexit.register(print, "exit handler", flush=True)
if len(sys.argv) > 1:
    skip_last_collection()
atexit.register(print, "later exit handler", flush=True)
sys.exit(3)
"""


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def test_garbage_is_left_at_the_end_while_exit_handlers_run_and_the_exit_code_stays() -> None:
    assert run() == (3, "later exit handler\nexit handler\ncollected\n")
    assert run("fast") == (3, "later exit handler\nexit handler\n")
