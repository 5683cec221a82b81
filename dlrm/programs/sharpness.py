"""Measures the sharpness of a checkpoint's model: `python -m dlrm.programs.sharpness RUN_DIRECTORY CHECKPOINT`.

Prints one line of JSON, a `dlrm.record.Sharpness`, and before it lines with the `done_fraction` of its work. A run
whose job asks for it starts this program at its end, so that the run survives where the model and the sample take more
memory than there is: the kernel ends this process first, as a stop signal does, at once.
"""

import argparse
import sys
from pathlib import Path

import torch

from dlrm.config import ResolvedJob
from dlrm.data.open import open_data
from dlrm.data.split import hold_out_validation, sample_train_rows
from dlrm.exported_model.export import read_model
from dlrm.exported_model.sharpness import MAX_PASSES, measure_sharpness
from dlrm.programs.json_lines import fail, print_line
from dlrm.record import EXIT_DONE, PreparedData, RunDirectory
from hostinfo.process_memory import end_first_when_memory_is_short
from hostinfo.stop_signals import end_on_stop_signals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("checkpoint", type=Path)
    arguments = parser.parse_args()
    end_on_stop_signals()
    end_first_when_memory_is_short()
    directory = RunDirectory(arguments.run_directory)
    resolved = ResolvedJob.model_validate_json(directory.spec.read_bytes())
    job, run = resolved.job, resolved.job.run
    # The other ranks are idle by now.
    torch.set_num_threads(job.resources.num_cores)
    prepared = PreparedData.read(directory.data)
    dataset = open_data(job.data, resolved.data_roots, prepared and Path(prepared.directory))
    held_out = hold_out_validation(dataset, run.validation_fraction, job.data.split, run.seed)
    assert run.sharpness is not None, "the job asks for it"
    sample = sample_train_rows(held_out, run.sharpness.num_rows)
    if sample is None:
        return fail("no row of the sample of training rows has a weight above 0")
    model = read_model(arguments.checkpoint, job, dataset.schema)
    measured = measure_sharpness(model, sample, lambda done: print_line({"done_fraction": done / MAX_PASSES}))
    print_line(measured.model_dump())
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
