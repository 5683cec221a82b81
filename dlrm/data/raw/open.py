"""Reader of raw files of any format, in blocks of rows, and the detection of the format."""

from collections.abc import Iterator, Sequence

from dlrm.config import DataConfig, SchemaConfig
from dlrm.data.raw.block import Block
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import identify_file, is_json_lines, name_other_kinds
from dlrm.data.raw.text import lines as text
from dlrm.data.raw.text.criteo import cut_criteo_blocks
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.text.csv_start import list_first_lines
from dlrm.data.raw.text.jsonl import cut_jsonl_blocks
from dlrm.data.raw.text.lines import read_lines
from dlrm.data.raw.typed import parquet
from dlrm.data.raw.typed.arrow import cut_arrow_blocks

_FIRST_BYTES = 1 << 18


def detect_format(file: DataFile) -> str:
    """Find the value of `data.format` that reads a file, by what it holds; `text` for text that is not JSON Lines.

    Raises DataError, which says what the file is, if no format reads it.
    """
    kind = identify_file(file)
    if kind.format is None:
        raise kind.make_error(file.name)
    if kind.format != "text":
        return kind.format
    first_lines = list_first_lines(next(read_lines(file, _FIRST_BYTES)))
    return "jsonl" if is_json_lines(first_lines, file.name) else "text"


def cut_blocks(config: DataConfig, files: Sequence[DataFile]) -> Iterator[Block]:
    """Cut all files into blocks, in order. `config.format` must be a raw format. See `cut_raw_blocks`."""
    return cut_raw_blocks(config.format, config.raw_schema, files)


def cut_raw_blocks(
    kind: str,
    schema: SchemaConfig,
    files: Sequence[DataFile],
    *,
    with_labels: bool = True,
    block_bytes: int | None = None,
) -> Iterator[Block]:
    """Cut all files into blocks, in order. A block is cut here, and parsed where its `parse` is called.

    kind: `criteo_tsv`, which has its own schema, `csv`, `jsonl`, `parquet` or `arrow`. with_labels: false reads neither
    label nor weight, whether the files have them or not. block_bytes: approximate bytes of a block in memory; None for
    the best size for the format. Raises DataError if a file cannot be read in that format.
    """
    text_bytes = text.BLOCK_BYTES if block_bytes is None else block_bytes
    table_bytes = parquet.BLOCK_BYTES if block_bytes is None else block_bytes
    for file in files:
        if kind == "criteo_tsv":
            yield from cut_criteo_blocks(file, text_bytes, with_labels)
        elif kind == "csv":
            yield from cut_csv_blocks(file, schema, text_bytes, with_labels)
        elif kind == "jsonl":
            yield from cut_jsonl_blocks(file, schema, text_bytes, with_labels)
        elif kind == "arrow":
            yield from cut_arrow_blocks(file, schema, block_bytes=table_bytes, with_labels=with_labels)
        elif kind == "parquet":
            with name_other_kinds([file]):
                yield from parquet.cut_parquet_blocks(file, schema, block_bytes=table_bytes, with_labels=with_labels)
        else:
            raise ValueError(f"files of format {kind} are not raw")
