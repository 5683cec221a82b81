"""Data sets of the benchmark, by name."""

from benchmarks.untouched.package_sets import PACKAGE_SETS
from benchmarks.untouched.real_sets import REAL_SETS
from benchmarks.untouched.synthetic_sets import SYNTHETIC_SETS

SETS = {one.name: one for one in (*PACKAGE_SETS, *REAL_SETS, *SYNTHETIC_SETS)}
