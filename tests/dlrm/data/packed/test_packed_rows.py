import gc
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrm.data.batches import TrainBatches
from dlrm.data.errors import DataError
from dlrm.data.packed import rows as packed_rows
from dlrm.data.packed.layout import META, get_bag_offsets_name, get_bag_values_name
from dlrm.data.packed.open import is_packed, open_packed
from dlrm.data.packed.rows import PackedRows
from dlrm.data.rows import Feature, Rows, Runs
from tests.dlrm.data.packed_files import FEATURES, ONE_ID, OTHER_ID, random_rows, write_packed
from tests.patience import wait_until

NUM_ROWS = 10_000
ONE_SPLIT = {"num_rows": 50, "num_positives": 1, "mean_weight": 1.0, "label_rate": 0.02}


@pytest.fixture(scope="module")
def train() -> Rows:
    return random_rows(NUM_ROWS)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, train: Rows) -> Path:
    path = tmp_path_factory.mktemp("packed")
    write_packed(path, train, random_rows(100, seed=1))
    return path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    write_packed(tmp_path, random_rows(50), random_rows(20, seed=1))
    return tmp_path


def bags_of(rows: Rows) -> list[list[list[int]]]:
    """Ids by feature and row."""
    starts = np.cumsum([0, *rows.ids.lengths.reshape(-1)])
    bags = [rows.ids.values[a:b].tolist() for a, b in itertools.pairwise(starts)]
    return [bags[f * rows.num_rows : (f + 1) * rows.num_rows] for f in range(len(rows.ids.lengths))]


def assert_rows(found: Rows, expected: Rows, numbers: list[int] | np.ndarray) -> None:
    np.testing.assert_array_equal(found.labels, expected.labels[numbers])
    np.testing.assert_array_equal(found.dense, expected.dense[numbers])
    assert (found.weights is None) == (expected.weights is None)
    if found.weights is not None and expected.weights is not None:
        np.testing.assert_array_equal(found.weights, expected.weights[numbers])
    assert bags_of(found) == [[bags[number] for number in numbers] for bags in bags_of(expected)]


@settings(max_examples=20)
@given(numbers=st.lists(st.integers(0, NUM_ROWS - 1), max_size=30))
def test_any_rows_are_read_in_any_order(directory: Path, train: Rows, numbers: list[int]) -> None:
    found = open_packed(directory).train.read(np.array(numbers, dtype=np.int64))
    assert_rows(found, train, numbers)
    assert (found.ids.values.dtype, found.ids.lengths.dtype) == (np.int64, np.int32)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_read_of_many_pieces_is_whole(
    directory: Path, train: Rows, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_rows, "_PIECE_ROWS", 300)
    numbers = np.random.default_rng(0).permutation(NUM_ROWS)
    assert_rows(open_packed(directory, num_threads).train.read(numbers), train, numbers)


@pytest.mark.parametrize(
    ("features", "id_type"),
    [
        ((ONE_ID, OTHER_ID), "int32"),
        ((ONE_ID, OTHER_ID), "int64"),
        ((FEATURES[0], FEATURES[2]), "int32"),
        ((FEATURES[0],), "int64"),
        ((Feature("big", 2**40),), "int64"),
    ],
)
def test_single_and_multi_hot_features_also_work_alone(tmp_path: Path, features: tuple, id_type: str) -> None:
    rows = random_rows(300, features, weighted=False)
    write_packed(tmp_path, rows, rows, features, id_type)
    data = open_packed(tmp_path)
    assert data.schema.features == features
    assert_rows(data.train.read(np.arange(300)), rows, np.arange(300))


@pytest.mark.parametrize(("features", "num_dense"), [((), 3), (FEATURES, 0), ((ONE_ID,), 0)])
def test_rows_without_dense_or_without_categorical_features_are_rows(
    tmp_path: Path, features: tuple[Feature, ...], num_dense: int
) -> None:
    rows = random_rows(300, features, num_dense)
    write_packed(tmp_path, rows, random_rows(7, features, num_dense), features)
    data = open_packed(tmp_path)
    assert (data.schema.num_dense, data.schema.features) == (num_dense, features)
    numbers = np.random.default_rng(0).permutation(300)
    assert_rows(data.train.read(numbers), rows, numbers)
    pieces = list(data.train.read(np.arange(300)).split(128))
    for start, piece in zip((0, 128, 256), pieces, strict=True):
        assert_rows(piece, rows, np.arange(start, start + piece.num_rows))
    for rank in range(2):
        with TrainBatches(data.train, 200, rank, 2, seed=0, num_epochs=1) as batches:
            full, short = batches
        assert full.dense.shape == short.dense.shape == (100, num_dense)
        assert full.ids.lengths.shape == short.ids.lengths.shape == (len(features), 100)
        assert short.num_valid == 100
        assert short.mask.sum() == 50


def test_lists_that_are_all_empty_have_no_values(tmp_path: Path) -> None:
    rows = random_rows(10, (ONE_ID, FEATURES[0]))
    rows.ids.lengths[1] = 0
    emptied = Rows(rows.labels, rows.dense, type(rows.ids)(rows.ids.values[:10], rows.ids.lengths), rows.weights)
    write_packed(tmp_path, emptied, emptied, (ONE_ID, FEATURES[0]))
    source = open_packed(tmp_path).train
    assert_rows(source.read(np.arange(10)), emptied, np.arange(10))
    source.look_ahead(runs_of((0, 3), (5, 10)), runs_of((3, 5)))


def test_the_directory_says_what_its_rows_are_like(directory: Path, train: Rows) -> None:
    data = open_packed(directory)
    assert is_packed(directory)
    assert (data.train.num_rows, data.evaluation.num_rows) == (NUM_ROWS, 100)
    assert train.weights is not None
    weights = train.weights.astype(np.float64)
    assert data.train_label_rate == pytest.approx(weights @ train.labels / weights.sum())
    assert data.mean_train_weight == pytest.approx(train.weights.mean())
    assert data.has_weights
    assert data.directory == directory
    assert data.encoders is not None
    assert data.encoders.schema_of_rows == data.schema == data.train.schema
    assert data.train.best_probabilities(np.arange(3)) is None


def test_a_number_that_is_of_no_row_is_refused(directory: Path) -> None:
    source = open_packed(directory).train
    for number in (-1, NUM_ROWS):
        with pytest.raises(IndexError, match="0 to 9999"):
            source.read(np.array([number]))


def runs_of(*runs: tuple[int, int]) -> Runs:
    starts, stops = zip(*runs, strict=True)
    return Runs(np.array(starts), np.array(stops))


def resident_bytes(directory: Path) -> int:
    """Of mapped files under a directory, as the kernel counts them."""
    total, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_ours = f"{directory}/" in line
        elif is_ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


def test_excess_pages_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(400_000, (ONE_ID, OTHER_ID), num_dense=8)
    write_packed(tmp_path, rows, random_rows(10, (ONE_ID, OTHER_ID), num_dense=8), (ONE_ID, OTHER_ID))
    source = open_packed(tmp_path).train
    monkeypatch.setattr(packed_rows, "MAX_MAPPED_BYTES", 2 << 20)
    largest = 0
    for start in range(0, 400_000, 20_000):
        source.look_ahead(runs_of((start, start + 20_000)), runs_of((0, 20_000)))
        numbers = np.random.default_rng(start).permutation(20_000) + start
        np.testing.assert_array_equal(source.read(numbers).dense, rows.dense[numbers])
        largest = max(largest, resident_bytes(tmp_path))
    assert source.row_bytes * 400_000 > 19_000_000
    assert 0 < largest < 5_000_000


def test_batches_tell_of_their_windows_and_the_next_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[tuple[int, int]] = []
    look_ahead = PackedRows.look_ahead

    def noted(source: PackedRows, now: Runs, soon: Runs) -> None:
        announced.append((int(now.ends.max()), int(soon.ends.max())))
        look_ahead(source, now, soon)

    monkeypatch.setattr(PackedRows, "look_ahead", noted)
    with TrainBatches(open_packed(directory).train, 1000, 0, 1, seed=0, num_epochs=3) as batches:
        assert [batch.num_valid for batch in batches] == [1000] * 30
    # A window is an epoch here, and the last one has none behind it.
    assert announced == [(NUM_ROWS, NUM_ROWS)] * 3


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def edit_meta(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("damage", [cut, lengthen, Path.unlink])
@pytest.mark.parametrize(
    "name",
    ["train/labels.bin", "eval/weights.bin", "train/dense.bin", "train/ids.bin", f"eval/{get_bag_values_name(0)}"],
)
def test_a_file_that_is_cut_foreign_or_gone_is_named(copy: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(copy / name)
    with pytest.raises(DataError) as caught:
        open_packed(copy)
    assert str(caught.value).startswith(f"{copy / name}: ")
    assert "dlrm prepare" in str(caught.value) or "prepare the data again" in str(caught.value)


def test_offsets_that_do_not_end_where_the_values_do_are_an_error(copy: Path) -> None:
    path = copy / "train" / get_bag_offsets_name(0)
    offsets = np.fromfile(path, dtype=np.int64)
    offsets[-1] += 1
    offsets.tofile(path)
    with pytest.raises(DataError, match=r"bags-0\.values\.bin: has"):
        open_packed(copy)


@pytest.mark.parametrize("id_type", ["int32", "int64"])
@pytest.mark.parametrize(
    ("name", "wrong", "place"),
    [("ids.bin", 1000, 1), ("ids.bin", -1, 1), (get_bag_values_name(0), 50, 0), (get_bag_values_name(0), -7, 0)],
)
def test_an_id_that_is_no_row_of_its_table_is_named(
    tmp_path: Path, id_type: str, name: str, wrong: int, place: int
) -> None:
    write_packed(tmp_path, random_rows(50), random_rows(20, seed=1), id_type=id_type)
    path = tmp_path / "train" / name
    ids = np.fromfile(path, dtype=id_type)
    ids[0] = wrong
    ids.tofile(path)
    feature = FEATURES[place]
    with (
        TrainBatches(open_packed(tmp_path).train, 50, 0, 1, seed=0, num_epochs=1) as batches,
        pytest.raises(DataError) as caught,
    ):
        next(batches)
    assert str(caught.value) == (
        f"{path}, {feature.name}: contains the id {wrong}, but its table has {feature.num_ids:,} rows "
        f"(valid: 0 to {feature.num_ids - 1}, as its meta.json says; prepare the data again)"
    )


def test_an_error_in_a_row_thread_reaches_the_reader_and_ends_all(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_rows, "_PIECE_ROWS", 5)
    path = copy / "train" / "ids.bin"
    ids = np.fromfile(path, dtype=np.int32)
    ids[0] = -1
    ids.tofile(path)
    before = set(threading.enumerate())
    source = open_packed(copy, num_threads=3).train
    with TrainBatches(source, 50, 0, 1, seed=0, num_epochs=1) as batches:
        with pytest.raises(DataError, match="contains the id -1"):
            next(batches)
        assert any(thread.name.startswith("rows") for thread in set(threading.enumerate()) - before)
    # Row threads last as long as the source, which other batches may read.
    del source, batches
    gc.collect()
    wait_until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 99}, "format_version: is 99"),
        ({"num_bad_rows": "x"}, "num_bad_rows"),
        ({"dense": [], "features": []}, "the rows have no features"),
        ({"splits": {"train": ONE_SPLIT}}, "no rows in eval/"),
    ],
)
def test_a_directory_that_nothing_can_be_trained_on_says_why(copy: Path, changes: dict, message: str) -> None:
    edit_meta(copy / META, **changes)
    with pytest.raises(DataError) as caught:
        open_packed(copy)
    assert message in str(caught.value)
    assert str(copy) in str(caught.value)


@pytest.mark.parametrize(
    ("mean", "message"), [(0.0, "are all 0"), *((mean, "have a mean of .*1e-12 to") for mean in (1e-13, 1e13, np.inf))]
)
def test_training_weights_that_are_0_or_whose_squares_float32_loses_are_an_error(
    copy: Path, mean: float, message: str
) -> None:
    splits = json.loads((copy / META).read_text())["splits"]
    splits["train"]["mean_weight"] = mean
    edit_meta(copy / META, splits=splits)
    with pytest.raises(DataError, match=rf"weights in train/ {message}"):
        open_packed(copy)


def test_a_directory_without_a_meta_file_or_encoders_is_an_error(copy: Path, tmp_path: Path) -> None:
    (copy / "encoders" / "encoders.json").unlink()
    with pytest.raises(DataError, match="encoders: not readable"):
        open_packed(copy)
    (copy / META).unlink()
    assert not is_packed(copy)
    with pytest.raises(DataError, match=r"meta\.json: not readable: No such file"):
        open_packed(copy)
