"""Watch over processes, children of this process or not: reports at once when one of them ends."""

import contextlib
import os
import select
import threading
from collections.abc import Callable


class ExitWatch:
    """Thread that waits for the ends of processes. It runs only while there are processes to wait for."""

    def __init__(self, on_exit: Callable[[], None]) -> None:
        """Call `on_exit`, in the thread, after every end of a watched process."""
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._files: dict[int, int] = {}
        """Open file of each watched process, by process id."""
        self._poll = select.epoll()
        self._is_running = False

    def add(self, pid: int) -> None:
        """Watch the process `pid`, which counts as ended if there is none."""
        with self._lock:
            if pid in self._files:
                return
            try:
                file = os.pidfd_open(pid)
            except ProcessLookupError:
                self._on_exit()
                return
            except OSError:
                # Without a free file number the next round of the control loop sees the end, a little later.
                return
            self._files[pid] = file
            self._poll.register(file, select.EPOLLIN | select.EPOLLONESHOT)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._wait, name="exit-watch", daemon=True).start()

    def _wait(self) -> None:
        while True:
            ended = {file for file, _ in self._poll.poll()}
            with self._lock:
                for pid, file in list(self._files.items()):
                    if file in ended:
                        del self._files[pid]
                        with contextlib.suppress(OSError):
                            self._poll.unregister(file)
                        os.close(file)
                is_last = not self._files
                self._is_running = not is_last
            self._on_exit()
            if is_last:
                return
