"""Image of containers: this machine's programs and libraries, its Python with all packages, and the code under test."""

import sys
from pathlib import Path
from typing import Any

from tests.kubernetes.containers import init

REPOSITORY = Path(__file__).parents[3]
PACKAGES = ("hostinfo", "sharding", "dlrm", "service")
ENVIRONMENT_PATH, CODE_PATH, INIT_PATH = "/opt/dlrm", "/opt/code", "/opt/init.py"
USER = 10_001
READABLE = 0o005
"""Mode bits of a directory that everybody may enter and list."""
ENVIRONMENT = {
    "PATH": f"{ENVIRONMENT_PATH}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "USER": "dlrm",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "DLRM_STATE_DIRECTORY": "/var/lib/dlrm",
    # In place of the installed package.
    "PYTHONPATH": CODE_PATH,
}
"""Variables that deploy/Containerfile sets."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def find_hidden() -> Path | None:
    """Find what a container needs and its user must not read; None if there is none."""
    needed = [Path(sys.prefix), Path(sys.base_prefix), *(REPOSITORY / package for package in PACKAGES)]
    return next((path for path in needed if path.stat().st_mode & READABLE != READABLE), None)


def make_entry_point() -> list[str]:
    """Make the words before the arguments of a container."""
    return [f"{ENVIRONMENT_PATH}/bin/python", "-I", "-S", INIT_PATH, "--"]


def make_links() -> dict[str, str]:
    """Make the symbolic links of the root, as on this machine, and of /dev."""
    found = {str(path): str(path.readlink()) for path in _list_top() if path.is_symlink()}
    return found | {"/dev/fd": "/proc/self/fd", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"}


def make_files() -> dict[str, str]:
    """Make the files of /etc. Names are looked up in /etc/hosts alone, which plays the cluster's DNS."""
    return {
        "/etc/passwd": f"root:x:0:0:root:/root:/bin/sh\ndlrm:x:{USER}:{USER}::/tmp:/usr/sbin/nologin\n",
        "/etc/group": f"root:x:0:\ndlrm:x:{USER}:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "/etc/resolv.conf": "",
    }


def make_mounts() -> list[dict[str, Any]]:
    """Make the mounts of the image, all read-only, and of the file systems that every container has."""
    sources = [(str(path), str(path)) for path in _list_top() if not path.is_symlink()]
    sources += [(str(path), str(path)) for path in map(Path, ("/etc/ld.so.cache", "/etc/ssl")) if path.exists()]
    sources += [(sys.base_prefix, sys.base_prefix), (sys.prefix, ENVIRONMENT_PATH), (str(init.__file__), INIT_PATH)]
    sources += [(str(REPOSITORY / package), f"{CODE_PATH}/{package}") for package in PACKAGES]
    mounts = [{"source": source, "target": target, "is_read_only": True} for source, target in sources]
    mounts += [{"source": f"/dev/{name}", "target": f"/dev/{name}", "is_read_only": False} for name in DEVICES]
    # What the image makes for its user cannot be written, since the root is read-only: none of it is here.
    mounts += [
        {"source": "proc", "target": "/proc", "kind": "proc", "is_read_only": False},
        {"source": "/proc/sys", "target": "/proc/sys", "is_read_only": True},
        {"source": "sysfs", "target": "/sys", "kind": "sysfs", "is_read_only": True},
        {
            "source": "cgroups",
            "target": "/sys/fs/cgroup",
            "kind": "tmpfs",
            "is_read_only": False,
            "options": "mode=755",
        },
    ]
    return mounts


def _list_top() -> list[Path]:
    return [path for name in ("usr", "bin", "sbin", "lib", "lib64") if (path := Path("/", name)).exists()]
