"""Measures simple models on the rows of a run: `python -m dlrm.programs.yardsticks RUN_DIRECTORY`.

Prints one line of JSON for each model once it is measured, a `dlrm.record.YardstickResult`, and lines of progress
before it, `dlrm.record.YardstickProgress`. Which ones is a setting of
the run, `run.yardsticks`. A run starts this program at its end; a stop signal ends it at once, and so does the kernel
where memory is short, before it ends the run.
"""

import argparse
import os
import sys
from pathlib import Path

# Before numpy and the libraries of trees read them: products of matrices gain nothing from threads here, and threads
# that wait actively would take the cores from others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from dlrm.programs.json_lines import print_line
from dlrm.programs.run_at_its_end import open_run
from dlrm.record import EXIT_DONE
from dlrm.yardsticks.measure import measure_yardsticks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_directory", type=Path)
    run = open_run(parser.parse_args().run_directory)
    for result in measure_yardsticks(run.job, run.dataset, lambda progress: print_line(progress.model_dump())):
        print_line(result.model_dump())
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
