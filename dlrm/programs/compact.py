"""Compacts deltas: `python -m dlrm.programs.compact DELTAS --output MODEL [--until N]`.

DELTAS is the `deltas/` directory of a run: its base with all deltas, or with the first N, is written as one model.
Prints one line of JSON: the step, and the number of deltas. A fault gives one line on stderr, and bad input exit code
64.
"""

import argparse
import json
import sys
from pathlib import Path

from dlrm.config import format_count
from dlrm.exported_model.delta import BASE, DeltaError, compact, list_deltas
from dlrm.exported_model.load import ModelError, check_files
from dlrm.programs.json_lines import fail
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED
from hostinfo.fast_exit import skip_last_collection


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deltas", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="directory to write; must not exist")
    parser.add_argument("--until", type=int, help="number of deltas to apply; default: all")
    arguments = parser.parse_args()
    base: Path = arguments.deltas / BASE
    try:
        check_files(base)
        config = compact(base, _choose(arguments.deltas, arguments.until), arguments.output)
    except (ModelError, DeltaError) as error:
        return fail(error, EXIT_BAD_INPUT)
    except OSError as error:
        return fail(error, EXIT_FAILED)
    num_deltas = 0 if config.position is None else config.position.order
    print(json.dumps({"step": config.step, "num_deltas": num_deltas}))  # noqa: T201
    return EXIT_DONE


def _choose(directory: Path, until: int | None) -> list[Path]:
    """Choose the first deltas of a directory. until: their number; None for all. Raises DeltaError."""
    deltas = list_deltas(directory)
    if until is not None and not 0 <= until <= len(deltas):
        last = f", the last of them {deltas[-1].name}" if deltas else ""
        message = f"--until {until}: {directory} has {format_count(len(deltas), 'delta')}{last}"
        raise DeltaError(f"{message} (valid: 0 to {len(deltas)})")
    return deltas[:until]


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
