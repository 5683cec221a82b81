"""What a preparation refuses, and that it leaves nothing, or what the next one goes on from."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS, compute_checksum
from dlrm.data.prepare.fit import open_base
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from dlrm.data.prepare.unfinished import lock_unfinished
from tests.dlrm.data.prepare.table_strategies import EventRecorder, MadeTable, data_config, prepare_all

SCHEMA = SchemaConfig(dense=[DenseColumn(name="d")], categorical=[CategoricalColumn(name="c")])
TABLE = MadeTable(SCHEMA, {"label": [0, 1] * 50, "d": [float(i) for i in range(100)], "c": ["a", "b"] * 50})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return TABLE.write(tmp_path / "rows", row_group_size=10)


def entries(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


class Interruption:
    """Interrupts the preparation at the first message that begins with `text`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, event: ProgressEvent | NoteEvent) -> None:
        if event.message.startswith(self._text):
            raise KeyboardInterrupt


def test_what_exists_is_not_overwritten(rows: Path, tmp_path: Path) -> None:
    for existing in (tmp_path / "directory", tmp_path / "file"):
        if existing.name == "file":
            existing.write_text("mine")
        else:
            existing.mkdir()
        with pytest.raises(DataError, match=rf"{existing}: exists already \(valid: remove it"):
            prepare_all(data_config(SCHEMA, [rows]), existing)
    assert entries(tmp_path) == {"rows", "directory", "file"}


def test_an_output_that_cannot_be_written_is_named(rows: Path) -> None:
    with pytest.raises(DataError, match="/packed: cannot be created: a part of its path is a file"):
        prepare_all(data_config(SCHEMA, [rows]), rows / "packed")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("/", "exists already"),
        ("nowhere/..", "is not the name of a new directory"),
        ("n" * 256, "cannot be created: File name too long"),
        ("n" * 255, "cannot be created: File name too long"),
        ("/proc/packed", "cannot be created: No such file or directory"),
    ],
)
def test_an_output_that_cannot_be_a_directory_is_named(rows: Path, tmp_path: Path, output: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        prepare_all(data_config(SCHEMA, [rows]), tmp_path / output)
    assert entries(tmp_path) == {"rows"}


def test_created_parent_directories_are_removed_where_the_data_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    bad = MadeTable(SCHEMA, TABLE.columns | {"label": [2] * 100}).write(tmp_path / "bad")
    for output in (tmp_path / "a" / "b" / "packed", tmp_path / "kept" / "c" / "packed"):
        with pytest.raises(DataError, match="label"):
            prepare_all(data_config(SCHEMA, [bad]), output)
    assert entries(tmp_path) == {"bad", "kept"}
    assert not entries(tmp_path / "kept")


def test_created_parent_directories_stay_where_another_process_uses_them(tmp_path: Path) -> None:
    def use(event: ProgressEvent | NoteEvent) -> None:
        (tmp_path / "a" / "letter.txt").write_text("mine")

    bad = MadeTable(SCHEMA, TABLE.columns | {"label": [2] * 100}).write(tmp_path / "bad")
    with pytest.raises(DataError, match="label"):
        prepare_all(data_config(SCHEMA, [bad]), tmp_path / "a" / "b" / "packed", on_event=use)
    assert entries(tmp_path / "a") == {"letter.txt"}


def test_of_several_that_begin_at_the_same_moment_one_is_let_in(tmp_path: Path) -> None:
    start, end = threading.Barrier(4), threading.Barrier(4)

    def begin(output: Path) -> str:
        start.wait(timeout=60)
        try:
            with lock_unfinished(output, "the same", "the same"):
                end.wait(timeout=60)
                return "let in"
        except DataError as error:
            end.wait(timeout=60)
            return error.message

    with ThreadPoolExecutor(4) as threads:
        for number in range(50):
            messages = list(threads.map(begin, [tmp_path / "deep" / str(number)] * 4))
            assert sorted(messages) == [*["another process is preparing it"] * 3, "let in"]


def test_two_at_once_do_not_meet(rows: Path, tmp_path: Path) -> None:
    with (
        lock_unfinished(tmp_path / "packed", "of somebody else", "whatever"),
        pytest.raises(DataError, match=r"packed: another process is preparing it"),
    ):
        prepare_all(data_config(SCHEMA, [rows]), tmp_path / "packed")
    assert entries(tmp_path) == {"rows", "packed.part"}


def test_what_a_killed_write_has_left_is_not_in_the_finished_directory(tmp_path: Path) -> None:
    output = tmp_path / "packed"
    with lock_unfinished(output, fingerprint="a", sources="b") as unfinished:
        (unfinished.path / "meta.json").write_text("{}")
        (unfinished.path / ".meta.json.1.part").write_text("{")
        unfinished.finish(output)
    assert [entry.name for entry in output.iterdir()] == ["meta.json"]


@pytest.mark.parametrize("message", ["reading", "measuring", "counting values", "writing", "checksums"])
def test_an_interrupted_preparation_is_resumed(rows: Path, tmp_path: Path, message: str) -> None:
    config = data_config(SCHEMA, [rows])
    undisturbed = prepare_all(config, tmp_path / "undisturbed")
    with pytest.raises(KeyboardInterrupt):
        prepare_all(config, tmp_path / "packed", on_event=Interruption(message))
    assert entries(tmp_path) == {"rows", "undisturbed", "packed.part"}
    assert compute_checksum(prepare_all(config, tmp_path / "packed")) == compute_checksum(undisturbed)
    assert entries(tmp_path) == {"rows", "undisturbed", "packed"}
    assert entries(tmp_path / "packed") == {"meta.json", "encoders", "train", "eval"}


def test_parts_that_are_staged_are_not_parsed_again(tmp_path: Path) -> None:
    table = MadeTable(SCHEMA, {**TABLE.columns, "label": [0, 1] * 30 + [7] + [1] * 39})
    config = data_config(SCHEMA, [table.write(tmp_path / "rows", row_group_size=10)], max_bad_fraction=0.5)
    with pytest.raises(KeyboardInterrupt):
        prepare_all(config, tmp_path / "packed", on_event=Interruption(f"{tmp_path}/rows, line 61"))
    stage = tmp_path / "packed.part" / "stage"
    staged = {path.name: path.stat().st_mtime_ns for path in stage.glob("*.arrow")}
    assert "part-000006.arrow" in staged
    assert not (stage / "parts.json").exists()
    with pytest.raises(KeyboardInterrupt):
        prepare_all(config, tmp_path / "packed", on_event=Interruption("measuring"))
    again = {path.name: path.stat().st_mtime_ns for path in stage.glob("*.arrow")}
    assert len(again) == 10
    assert again.items() >= staged.items()


@pytest.mark.parametrize("change", ["settings", "data"])
def test_an_interrupted_preparation_of_something_else_is_left_alone(rows: Path, tmp_path: Path, change: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare_all(data_config(SCHEMA, [rows]), tmp_path / "packed", on_event=Interruption("writing"))
    if change == "data":
        TABLE.rows(0, 50).write(rows)
    config = data_config(SCHEMA, [rows], eval_fraction=0.2 if change == "settings" else 0.1)
    with pytest.raises(DataError, match=r"packed\.part: contains an unfinished preparation of other data.*remove it"):
        prepare_all(config, tmp_path / "packed")
    assert (tmp_path / "packed.part" / "stage").exists()


def test_a_directory_that_is_no_preparation_is_left_alone(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "packed.part").mkdir()
    (tmp_path / "packed.part" / "letter.txt").write_text("mine")
    with pytest.raises(DataError, match=r"packed\.part: contains something other"):
        prepare_all(data_config(SCHEMA, [rows]), tmp_path / "packed")
    assert entries(tmp_path / "packed.part") == {"letter.txt"}


def test_parts_from_before_the_machine_went_down_are_not_trusted(rows: Path, tmp_path: Path) -> None:
    config = data_config(SCHEMA, [rows])
    with pytest.raises(KeyboardInterrupt):
        prepare_all(config, tmp_path / "packed", on_event=Interruption("writing"))
    state = tmp_path / "packed.part" / "preparing.json"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    state.write_text(state.read_text().replace(boot_id, "another"))
    for part in (tmp_path / "packed.part" / "stage").glob("*.arrow"):
        part.write_bytes(bytes(part.stat().st_size))
    meta = prepare_all(config, tmp_path / "packed")
    assert compute_checksum(meta) == compute_checksum(prepare_all(config, tmp_path / "undisturbed"))


def _change(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _move(path: Path) -> None:
    path.rename(path.with_name("moved"))


@pytest.mark.parametrize(("disturb", "left"), [(_change, "rows"), (_move, "moved")])
def test_a_file_that_changes_or_goes_while_it_is_read_is_an_error(
    rows: Path, tmp_path: Path, disturb: Callable[[Path], None], left: str
) -> None:
    def disturb_once(event: ProgressEvent | NoteEvent) -> None:
        if event.message.startswith("reading") and rows.exists():
            disturb(rows)

    with pytest.raises(DataError, match=f"{rows}: "):
        prepare_all(data_config(SCHEMA, [rows]), tmp_path / "packed", on_event=disturb_once)
    assert entries(tmp_path) == {left}


@pytest.mark.parametrize(
    ("train_weight", "eval_weight", "message"),
    [
        (0.0, 1.0, "weight: every training row has weight 0"),
        (1.0, 0.0, "weight: every evaluation row has weight 0"),
        (1e20, 1.0, r"weight: the training rows have a mean weight of 1e\+20 .*1e-12 to 1e\+12"),
        (1e-20, 1.0, "weight: the training rows have a mean weight of 1e-20"),
        (1.0, 1e30, None),
    ],
)
def test_weights_of_0_and_training_weights_whose_squares_float32_loses_are_refused(
    tmp_path: Path, train_weight: float, eval_weight: float, message: str | None
) -> None:
    schema = SCHEMA.model_copy(update={"weight": "weight"})
    train, evaluation = (
        MadeTable(schema, {**TABLE.columns, "weight": [weight] * 100}).write(tmp_path / name)
        for name, weight in (("train", train_weight), ("eval", eval_weight))
    )
    config = data_config(schema, [train], eval=[str(evaluation)])
    if message is None:
        meta = prepare_all(config, tmp_path / "packed")
        assert meta.splits["eval"].mean_weight == pytest.approx(eval_weight)
        return
    with pytest.raises(DataError, match=message):
        prepare_all(config, tmp_path / "packed")
    assert entries(tmp_path) == {"train", "eval"}


@pytest.mark.parametrize("field", ["train", "eval"])
def test_files_without_rows_are_named(rows: Path, tmp_path: Path, field: str) -> None:
    empty = [TABLE.rows(0, 0).write(tmp_path / name) for name in ("empty", "also")]
    files = {"train": [rows], "eval": [rows], field: empty}
    with pytest.raises(DataError, match=rf"{empty[0]}, data\.{field}: holds no rows; none of the 2 files does"):
        prepare_all(data_config(SCHEMA, files["train"], eval=[str(file) for file in files["eval"]]), tmp_path / "out")
    assert entries(tmp_path) == {"rows", "empty", "also"}


def test_an_extension_keeps_old_ids_and_dense_features(rows: Path, tmp_path: Path) -> None:
    prepare_all(data_config(SCHEMA, [rows]), tmp_path / "old")
    base = open_base(tmp_path / "old")
    columns = {"label": [0, 1] * 50, "d": [None, 5.0] * 50, "c": ["z"] * 90 + ["a"] * 10}
    newer = MadeTable(SCHEMA, columns).write(tmp_path / "newer")
    meta = prepare_all(data_config(SCHEMA, [newer]), tmp_path / "new", base=base)
    extended = Encoders.load(tmp_path / "new" / ENCODERS)
    assert list(extended.dense) == list(base.dense)
    assert meta.dense == ["d"]
    values = [vocabulary.distinct.to_list() for vocabulary in (base.vocabularies[0], extended.vocabularies[0])]  # type: ignore[attr-defined]
    assert values[1] == [*values[0], "z"]


@pytest.mark.parametrize(
    ("hash_size", "base_size", "message"),
    [
        (10, None, r"data\.vocabulary: c has counted values"),
        (51, 50, r"data\.vocabulary\.columns\.c\.hash_size: c has 50 table rows in the base, and would have 51"),
    ],
)
def test_columns_that_are_encoded_otherwise_cannot_extend(
    rows: Path, tmp_path: Path, hash_size: int, base_size: int | None, message: str
) -> None:
    old = {} if base_size is None else {"hash_size": base_size}
    prepare_all(data_config(SCHEMA, [rows], vocabulary=old), tmp_path / "old")
    config = data_config(SCHEMA, [rows], vocabulary={"hash_size": hash_size})
    with pytest.raises(DataError, match=message):
        prepare_all(config, tmp_path / "new", base=open_base(tmp_path / "old"))
    assert entries(tmp_path) == {"rows", "old"}


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_a_split_that_leaves_no_rows_is_refused(rows: Path, tmp_path: Path, fraction: float) -> None:
    few = TABLE.rows(0, 9).write(tmp_path / "few")
    with pytest.raises(DataError, match=r"data\.eval_fraction: no row is left"):
        prepare_all(data_config(SCHEMA, [few], eval_fraction=fraction), tmp_path / "packed")


def test_a_directory_without_encoders_cannot_be_extended(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{tmp_path}: contains no encoders to extend: No such file"):
        open_base(tmp_path)
    (tmp_path / "encoders").mkdir()
    (tmp_path / "encoders" / "encoders.json").write_text("{}")
    with pytest.raises(DataError, match="contains no encoders to extend: "):
        open_base(tmp_path)


def test_progress_goes_from_nothing_to_all_in_order(rows: Path, tmp_path: Path) -> None:
    recorder = EventRecorder()
    prepare_all(data_config(SCHEMA, [rows]), tmp_path / "packed", on_event=recorder)
    moved = [each for each in recorder.all if isinstance(each, ProgressEvent)]
    fractions = [each.done_fraction for each in moved]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    phases = dict.fromkeys(each.message.partition(":")[0].partition(" in ")[0] for each in moved)
    assert list(phases) == ["reading", "measuring", "counting values", "writing", "checksums", "done"]
