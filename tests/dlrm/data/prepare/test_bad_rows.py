"""Bad rows: left out, counted and reported up to a share, and an error above it."""

from pathlib import Path

import pytest

from dlrm.config import DataConfig, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import PackedMeta
from dlrm.data.raw.block import BadRowCount
from dlrm.data.split import split_by_hash
from tests.dlrm.data.prepare.table_strategies import EventRecorder, data_config, prepare_all, read_split
from tests.dlrm.data.raw.criteo_files import criteo_line, criteo_lines, write_lines

NUM_ROWS = 200
BAD = criteo_line(label="2")


def file_with_bad_rows(path: Path, bad_rows: set[int]) -> Path:
    return write_lines(path, [BAD if row in bad_rows else line for row, line in enumerate(criteo_lines(NUM_ROWS))])


def prepare_with(tmp_path: Path, bad_rows: set[int], max_bad_fraction: float, recorder: EventRecorder) -> PackedMeta:
    file = file_with_bad_rows(tmp_path / "rows.tsv", bad_rows)
    config = data_config(None, [file], max_bad_fraction=max_bad_fraction, eval_fraction=0.3)
    return prepare_all(config, tmp_path / "packed", on_event=recorder)


def test_bad_rows_are_left_out_and_keep_their_numbers(tmp_path: Path) -> None:
    recorder = EventRecorder()
    bad_rows = {3, 77, 78, 199}
    meta = prepare_with(tmp_path, bad_rows, 0.02, recorder)
    assert meta.num_bad_rows == 4
    assert [note.partition(": ")[0] for note in recorder.notes] == [
        f"{tmp_path}/rows.tsv, line {row + 1}, label" for row in sorted(bad_rows)
    ]
    labels = [float(line[0]) for line in criteo_lines(NUM_ROWS)]
    for split, numbers in zip(("train", "eval"), split_by_hash(NUM_ROWS, 0.3), strict=True):
        expected = [labels[row] for row in numbers if row not in bad_rows]
        assert read_split(tmp_path / "packed", meta, split).labels.tolist() == expected


def test_ten_bad_rows_are_reported_and_all_are_counted(tmp_path: Path) -> None:
    recorder = EventRecorder()
    meta = prepare_with(tmp_path, set(range(0, 60, 2)), 0.5, recorder)
    assert meta.num_bad_rows == 30
    assert len(recorder.notes) == 10


@pytest.mark.parametrize(("num_bad", "is_fine"), [(10, True), (11, False)])
def test_the_share_of_bad_rows_may_be_reached_and_not_exceeded(tmp_path: Path, num_bad: int, is_fine: bool) -> None:
    bad_rows = set(range(num_bad))
    if is_fine:
        assert prepare_with(tmp_path, bad_rows, 0.05, EventRecorder()).num_bad_rows == num_bad
        return
    with pytest.raises(DataError) as raised:
        prepare_with(tmp_path, bad_rows, 0.05, EventRecorder())
    text = str(raised.value)
    assert text.startswith("data.max_bad_fraction: 11 of 200 rows are bad")
    assert f"{tmp_path}/rows.tsv, line 1, label" in text
    assert {path.name for path in tmp_path.iterdir()} == {"rows.tsv"}


def test_rows_whose_weight_is_no_finite_number_within_float32_are_bad_rows(tmp_path: Path) -> None:
    schema = SchemaConfig(weight="w", dense=[DenseColumn(name="x")])
    weights = ["1", "2.5"] * (NUM_ROWS // 2)
    weights[5:45:10] = ["inf", "1e39", "nan", "-1"]
    lines = [f"{row % 2},{row},{weight}" for row, weight in enumerate(weights)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["label,x,w", *lines, ""]))
    config = DataConfig(
        train=[str(file)], format="csv", schema=schema, max_bad_fraction=4 / NUM_ROWS, eval_fraction=0.3
    )
    recorder = EventRecorder()
    meta = prepare_all(config, tmp_path / "packed", on_event=recorder)
    assert meta.num_bad_rows == 4
    assert [note.partition(": ")[0] for note in recorder.notes] == [
        f"{file}, line {row + 2}, w" for row in (5, 15, 25, 35)
    ]
    found = [read_split(tmp_path / "packed", meta, split).weights for split in ("train", "eval")]
    good = sorted(float(weight) for row, weight in enumerate(weights) if row not in (5, 15, 25, 35))
    assert sorted(weight for of_split in found if of_split is not None for weight in of_split.tolist()) == good
    with pytest.raises(DataError, match=r"data\.max_bad_fraction: 4 of 200 rows are bad"):
        prepare_all(config.model_copy(update={"max_bad_fraction": 3 / NUM_ROWS}), tmp_path / "other")


@pytest.mark.parametrize("num_threads", [1, 4])
def test_the_first_bad_row_ends_it_where_none_is_allowed(tmp_path: Path, num_threads: int) -> None:
    files = [file_with_bad_rows(tmp_path / name, bad) for name, bad in (("a", set()), ("b", {8, 90}), ("c", {0}))]
    with pytest.raises(DataError) as raised:
        prepare_all(data_config(None, files), tmp_path / "packed", num_threads=num_threads)
    assert str(raised.value).startswith(f"{tmp_path}/b, line 9, label: ")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}


def test_a_bad_row_is_reported_before_a_later_file_that_is_not_text(tmp_path: Path) -> None:
    first = file_with_bad_rows(tmp_path / "a", {5})
    second = tmp_path / "b"
    second.write_bytes(b"PAR1 and so on")
    with pytest.raises(DataError) as raised:
        prepare_all(data_config(None, [first, second]), tmp_path / "packed")
    assert str(raised.value).startswith(f"{tmp_path}/a, line 6, label: ")


def test_bad_rows_that_lie_together_at_the_start_count_against_all_rows() -> None:
    notes: list[str] = []
    bad_rows = BadRowCount(0.01, notes.append)
    bad_rows.add(200_000, 2_800, ["the first", "the second"])
    bad_rows.add(400_000, 0, [])
    bad_rows.check()
    assert notes == ["the first", "the second"]


def test_a_first_file_of_bad_rows_is_compensated_by_later_files(tmp_path: Path) -> None:
    bad = write_lines(tmp_path / "bad", [BAD] * 60_000 + [criteo_line()] * 60_000)
    good = write_lines(tmp_path / "good", [criteo_line()] * 20_000)
    meta = prepare_all(data_config(None, [bad, good], max_bad_fraction=0.45), tmp_path / "packed")
    assert meta.num_bad_rows == 60_000


def test_nothing_but_bad_rows_leave_nothing_to_train_on(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows", [*([BAD] * 99), criteo_line()])
    with pytest.raises(DataError, match=r"data\.eval_fraction: no row is left for evaluation with 1 row at"):
        prepare_all(data_config(None, [file], max_bad_fraction=0.995), tmp_path / "packed")
