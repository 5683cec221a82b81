"""Data sets of real rows that no package carries: files that the user has in a directory."""

import polars as pl

from benchmarks.untouched.data_set import DataSet, Split, split_at_random
from benchmarks.untouched.sources import Sources
from dlrm.config import CRITEO_SCHEMA

_FLIGHTS_FILE = "flights.parquet"
_CRITEO_FILE = "criteo_kaggle_first10000.tsv"


def load_flights(sources: Sources) -> Split:
    """Load the flights of `examples/flights.toml`."""
    return split_at_random(pl.read_parquet(sources.find_real_file(_FLIGHTS_FILE)), test_fraction=0.1)


def load_criteo(sources: Sources) -> Split:
    """Load the first rows of Criteo's log of ads, as CSV with names."""
    dense, categorical = (
        [column.name for column in columns] for columns in (CRITEO_SCHEMA.dense, CRITEO_SCHEMA.categorical)
    )
    types = dict.fromkeys(["label", *dense], pl.Int64) | dict.fromkeys(categorical, pl.String)
    path = sources.find_real_file(_CRITEO_FILE)
    return split_at_random(pl.read_csv(path, has_header=False, separator="\t", schema=pl.Schema(types)))


CRITEO = DataSet("criteo", "label", load_criteo)
FLIGHTS = DataSet("flights", "label", load_flights, file_format="parquet")
REAL_SETS = (CRITEO, FLIGHTS)
