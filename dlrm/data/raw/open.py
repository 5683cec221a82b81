"""The rows of raw files of any format."""

from collections.abc import Iterator, Sequence

from dlrm.config import DataConfig
from dlrm.data.raw.block import Block
from dlrm.data.raw.criteo import criteo_blocks
from dlrm.data.raw.csv import csv_blocks
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.parquet import parquet_blocks


def blocks_of(config: DataConfig, files: Sequence[DataFile]) -> Iterator[Block]:
    """The blocks of all files, in order; config.format is a raw one.

    Raises DataError where a file cannot be read as that format. Blocks are cut here and parsed where `parse` is called.
    """
    for file in files:
        if config.format == "criteo_tsv":
            yield from criteo_blocks(file)
        elif config.format == "csv":
            yield from csv_blocks(file, config.raw_schema)
        elif config.format == "parquet":
            yield from parquet_blocks(file, config.raw_schema)
        else:
            raise ValueError(f"files of format {config.format} are not raw")
