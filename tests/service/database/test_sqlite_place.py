"""Which file systems SQLite may be on."""

from pathlib import Path

import pytest

from service.database.sqlite_place import check_sqlite_place, find_file_system_type
from service.database.url import UnsafePlaceError
from tests.small_disk import small_disk

MOUNTS = r"""
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard
30 22 0:25 / /dev/shm rw,nosuid master:2 propagate_from:1 - tmpfs tmpfs rw
41 22 0:40 / /home rw,relatime - nfs4 server:/home rw,vers=4.2
42 41 0:41 / /home/local rw,relatime shared:9 - xfs /dev/sdb rw
43 22 0:42 / /mnt/my\040data\134new rw - cifs //server/share rw
44 22 0:43 /sub /mnt/twice rw - ext4 /dev/sdc rw
45 22 0:44 / /mnt/twice rw - fuse.sshfs me@server: rw
46 22 0:45 / /mnt/windows rw - fuseblk /dev/sdd rw
47 22 0:46 / /mnt/größe rw - lustre mds:/scratch rw
48 22 0:47 / /mnt/cut
49 22 0:48 / /mnt/cut rw relatime shared:1 -
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/dlrm.sqlite3", "ext4"),
        ("/dev/shm/dlrm.sqlite3", "tmpfs"),
        ("/home/me/dlrm.sqlite3", "nfs4"),
        ("/home/local/dlrm.sqlite3", "xfs"),
        ("/home/locally/dlrm.sqlite3", "nfs4"),
        (r"/mnt/my data\new/dlrm.sqlite3", "cifs"),
        ("/mnt/twice/dlrm.sqlite3", "fuse.sshfs"),
        ("/mnt/windows/dlrm.sqlite3", "fuseblk"),
        ("/mnt/größe/dlrm.sqlite3", "lustre"),
        ("/mnt/cut/dlrm.sqlite3", "ext4"),
    ],
)
def test_a_file_is_on_the_file_system_that_is_mounted_closest_to_it(path: str, kind: str) -> None:
    assert find_file_system_type(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "fuse.sshfs",
        "ceph",
        "lustre",
        "glusterfs",
        "fuse.glusterfs",
        "afs",
    ],
)
def test_sqlite_on_a_network_file_system_is_refused_with_postgresql_as_the_way_out(kind: str) -> None:
    mounts = f"22 1 0:20 / / rw - ext4 /dev/root rw\n23 22 0:21 / /net rw - {kind} server:/x rw\n"
    with pytest.raises(
        UnsafePlaceError, match=rf"DLRM_DATABASE_URL: .*/net/x\.sqlite3 is on {kind}; .*postgresql\+"
    ) as raised:
        check_sqlite_place(Path("/net/x.sqlite3"), mounts)
    assert "\n" not in str(raised.value)
    check_sqlite_place(Path("/x.sqlite3"), mounts)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuseblk", "fuse.mergerfs", "nfsd"]
)
def test_sqlite_on_a_disk_of_this_machine_is_accepted(kind: str) -> None:
    check_sqlite_place(Path("/net/x.sqlite3"), f"23 22 0:21 / /net rw - {kind} server:/x rw\n")


def test_a_link_counts_as_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "link").symlink_to("net")
    mounts = f"22 1 0:20 / / rw - ext4 /dev/root rw\n23 22 0:21 / {tmp_path}/net rw - nfs server:/x rw\n"
    with pytest.raises(UnsafePlaceError):
        check_sqlite_place(tmp_path / "link/x.sqlite3", mounts)


def test_where_nothing_is_known_of_the_place_it_is_accepted() -> None:
    check_sqlite_place(Path("/x.sqlite3"), "")


def test_the_mounts_of_this_machine_are_understood(tmp_path: Path) -> None:
    with small_disk(tmp_path / "my disk", 1 << 16) as disk:
        mounts = Path("/proc/self/mountinfo").read_text()
        assert find_file_system_type((disk / "x.sqlite3").resolve(), mounts) == "tmpfs"
        check_sqlite_place(disk / "x.sqlite3")
