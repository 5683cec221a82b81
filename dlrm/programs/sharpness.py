"""Measures the sharpness of a checkpoint's model: `python -m dlrm.programs.sharpness RUN_DIRECTORY CHECKPOINT`.

Prints one line of JSON, a `dlrm.record.Sharpness`, and before it lines with the `done_fraction` of its work. A run
whose job asks for it starts this program at its end, so that the run survives where the model and the sample take more
memory than there is: the kernel ends this process first, as a stop signal does, at once.
"""

import argparse
import sys
from pathlib import Path

import torch

from dlrm.data.split import hold_out_validation, sample_train_rows
from dlrm.exported_model.export import read_model
from dlrm.exported_model.sharpness import MAX_PASSES, measure_sharpness
from dlrm.programs.json_lines import fail, print_line
from dlrm.programs.run_at_its_end import open_run
from dlrm.record import EXIT_DONE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("checkpoint", type=Path)
    arguments = parser.parse_args()
    run = open_run(arguments.run_directory)
    settings = run.job.run
    # The other ranks are idle by now.
    torch.set_num_threads(run.job.resources.num_cores)
    held_out = hold_out_validation(run.dataset, settings.validation_fraction, run.job.data.split, settings.seed)
    assert settings.sharpness is not None, "the job asks for it"
    sample = sample_train_rows(held_out, settings.sharpness.num_rows)
    if sample is None:
        return fail("no row of the sample of training rows has a weight above 0")
    model = read_model(arguments.checkpoint, run.job, run.dataset.schema)
    measured = measure_sharpness(
        model,
        sample,
        lambda done: print_line({"done_fraction": done / MAX_PASSES}),
        run.job.data.negative_sampling,
    )
    print_line(measured.model_dump())
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
