from pathlib import Path

import pytest

from dlrm.data.errors import DataError
from dlrm.data.raw.text import lines as text
from dlrm.data.raw.text.lines import read_lines
from tests.dlrm.data.raw.plain import COMPRESSIONS, compressed, found


@pytest.mark.parametrize("content", ["a", "a\n", "\n", "\n\n", "\n\n\n", "a\n\n", "a\nb", "ab\n", "ab\nc"])
@pytest.mark.parametrize("block_bytes", [1, 2, 3, 100])
def test_small_files_are_no_exception(tmp_path: Path, content: str, block_bytes: int) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(content)
    runs = list(read_lines(found(path), block_bytes))
    assert b"".join(run.data for run in runs).decode() == content.removesuffix("\n") + "\n"


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n"])
def test_every_line_is_read_once_with_its_number(tmp_path: Path, compression: str, block_bytes: int, end: str) -> None:
    lines = [f"{'x' * (number % 11)}{number}" for number in range(100)]
    path = tmp_path / "a.tsv"
    path.write_bytes(compressed(("\n".join(lines) + end).encode(), compression))
    runs = list(read_lines(found(path), block_bytes))
    assert b"".join(run.data for run in runs).decode() == "".join(f"{line}\n" for line in lines)
    number = 1
    for run in runs:
        assert run.first_number == number
        assert run.num_lines == run.data.count(b"\n") > 0
        number += run.num_lines
    assert sum(run.num_bytes for run in runs) == path.stat().st_size


def test_cuts_depend_on_the_text_alone(tmp_path: Path) -> None:
    content = "".join(f"{number}\n" for number in range(1000)).encode()
    cuts = []
    for compression in COMPRESSIONS:
        path = tmp_path / compression
        path.write_bytes(compressed(content, compression))
        cuts.append([run.data for run in read_lines(found(path), 100)])
    assert all(others == cuts[0] for others in cuts)
    assert len(cuts[0]) > 10


def test_a_byte_order_mark_is_skipped_once(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"\xef\xbb\xbf\xef\xbb\xbfa\n")
    for block_bytes in (1, 2, 100):
        assert b"".join(run.data for run in read_lines(found(path), block_bytes)) == b"\xef\xbb\xbfa\n"


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\nb\n" + b"x" * 5000)
    with pytest.raises(DataError, match=r"line 3: the line is too long \(valid: lines of at most 1,000 bytes\)"):
        list(read_lines(found(path), 100))
    with path.open("wb") as file:
        file.write(b"x" * 5000)
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="line 1: the line is too long"):
        list(read_lines(found(path), 100))


@pytest.mark.parametrize("compression", ["gzip", "gzip members", "zstd"])
@pytest.mark.parametrize("lost_fraction", [0.01, 0.5, 0.99])
def test_a_truncated_stream_is_one_error(tmp_path: Path, compression: str, lost_fraction: float) -> None:
    whole = compressed("".join(f"{number * 7919 % 10007}\n" for number in range(20_000)).encode(), compression)
    path = tmp_path / "a.tsv"
    path.write_bytes(whole[: -int(len(whole) * lost_fraction)])
    name = compression.partition(" ")[0]
    with pytest.raises(DataError, match=f"a.tsv: the {name} stream ends early: the file is truncated"):
        list(read_lines(found(path), 1000))


def test_zeros_after_the_end_of_gzip_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(compressed(b"a\nb\n", "gzip members") + bytes(100_000))
    assert b"".join(run.data for run in read_lines(found(path))) == b"a\nb\n"
    path.write_bytes(compressed(b"a\nb\n", "gzip") + b"\0\0c")
    with pytest.raises(DataError, match=r"a\.tsv: the gzip stream is damaged"):
        list(read_lines(found(path)))


@pytest.mark.parametrize("kind", [0x50, 0x5F])
def test_zstd_may_start_with_a_frame_without_text(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "a.tsv"
    skipped = bytes([kind, 0x2A, 0x4D, 0x18]) + (3).to_bytes(4, "little") + b"abc"
    path.write_bytes(skipped + compressed(b"a\nb\n", "zstd") + skipped)
    assert b"".join(run.data for run in read_lines(found(path))) == b"a\nb\n"


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_damaged_stream_is_one_error(tmp_path: Path, compression: str) -> None:
    whole = bytearray(
        compressed("".join(f"{number * 7919 % 10007}\n" for number in range(20_000)).encode(), compression)
    )
    del whole[len(whole) // 2 : len(whole) // 2 + 100]
    path = tmp_path / "a.tsv"
    path.write_bytes(whole)
    with pytest.raises(DataError, match=f"a.tsv: the {compression} stream"):
        list(read_lines(found(path), 1000))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (compressed(b"", "gzip"), "the file is empty"),
        (compressed(b"", "zstd"), "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
    ],
    ids=["empty gzip", "empty zstd", "byte order mark alone"],
)
def test_a_file_without_text_is_empty(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"a.tsv: {message}"):
        list(read_lines(found(path)))
