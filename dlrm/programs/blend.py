"""Blends a checkpoint of a run with logistic regression, and recalibrates it, as far as its job asks for it:
`python -m dlrm.programs.blend RUN_DIRECTORY CHECKPOINT`.

Writes the first-order part and the map of the result, with its metrics, to the file `blend.safetensors` of the run
directory, see `dlrm.exported_model.blend_file`. A run starts this program at its end, so that the run survives where
the rows and the model take more memory than there is: the kernel ends this process first, as a stop signal does, at
once.
"""

import argparse
import sys
from pathlib import Path

import torch

from dlrm.exported_model.blend_file import write_blend
from dlrm.exported_model.export import read_model
from dlrm.exported_model.refine import refine_and_measure
from dlrm.programs.run_at_its_end import open_run
from dlrm.record import EXIT_DONE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("checkpoint", type=Path)
    arguments = parser.parse_args()
    run = open_run(arguments.run_directory)
    # Sums are split by threads, so that another number of them would change the last bits of the model.
    torch.set_num_threads(run.job.resources.threads_per_worker)
    model = read_model(arguments.checkpoint, run.job, run.dataset.schema)
    write_blend(run.directory.blend, refine_and_measure(model, run.dataset, run.job))
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
