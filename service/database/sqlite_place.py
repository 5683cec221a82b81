"""Check against SQLite files on network file systems, where their locks cannot be relied upon."""

import os
import re
from pathlib import Path

from service.database.url import UnsafePlaceError

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK_TYPE = re.compile(
    r"9p|afs|beegfs|ceph|cifs|coda|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs|nfs4|ocfs2|orangefs|panfs|smb3|smbfs|vboxsf|wekafs"
    r"|fuse\.(beegfs|ceph|ceph-fuse|davfs2|gcsfuse|glusterfs|goofys|grpcfuse|gvfsd-fuse|juicefs|lustre|moosefs|rclone"
    r"|s3fs|seaweedfs|sshfs)"
)
"""Types of file systems whose files other machines may write to. SQLite's write-ahead log needs memory and locks that
all writers share."""


def check_sqlite_place(file: Path, mounts: str | None = None) -> None:
    """Check that the file system of an SQLite file, or of a file yet to be made, is one of this machine.

    mounts: content of /proc/self/mountinfo; None reads it, and checks nothing if there is none. Raises
    UnsafePlaceError.
    """
    if mounts is None:
        mounts = _MOUNTS.read_text(errors="surrogateescape") if _MOUNTS.exists() else ""
    kind = find_file_system_type(Path(os.path.realpath(file)), mounts)
    if kind is not None and _NETWORK_TYPE.fullmatch(kind):
        raise UnsafePlaceError(
            f"DLRM_DATABASE_URL: SQLite cannot be used on a network file system, and {file} is on {kind}; choose a "
            "file on a disk of this machine, or PostgreSQL: postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE"
        )


def find_file_system_type(path: Path, mounts: str) -> str | None:
    """Find the type of the file system that has `path`, an absolute path without links; None if it is unknown.

    mounts: content of /proc/self/mountinfo. Of several mounts on the same directory the last one hides the others.
    """
    found: tuple[Path, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 10 or "-" not in fields[6:-1]:
            continue
        place, kind = Path(_decode(fields[4])), fields[fields.index("-", 6) + 1]
        is_deeper = found is None or len(place.parts) >= len(found[0].parts)
        if is_deeper and path.is_relative_to(place):
            found = place, kind
    return found[1] if found else None


def _decode(text: str) -> str:
    """Decode a path of mountinfo, where a space, a tab, a line break or a backslash is written in octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
