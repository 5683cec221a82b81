"""Blends a checkpoint of a run with logistic regression: `python -m dlrm.programs.blend RUN_DIRECTORY CHECKPOINT`.

Writes the first-order part of the blended model and its metrics to the file `blend.safetensors` of the run directory,
see `dlrm.exported_model.blend_file`. A run whose job asks for a blend starts this program at its end, so that the run
survives where the rows and the model take more memory than there is: the kernel ends this process first, as a stop
signal does, at once.
"""

import argparse
import sys
from pathlib import Path

import torch

from dlrm.config import ResolvedJob
from dlrm.data.open import open_data
from dlrm.exported_model.blend import blend_and_measure
from dlrm.exported_model.blend_file import write_blend
from dlrm.exported_model.export import read_model
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
    job = resolved.job
    # Sums are split by threads, so that another number of them would change the last bits of the model.
    torch.set_num_threads(job.resources.threads_per_worker)
    prepared = PreparedData.read(directory.data)
    dataset = open_data(job.data, resolved.data_roots, prepared and Path(prepared.directory))
    model = read_model(arguments.checkpoint, job, dataset.schema)
    write_blend(directory.blend, blend_and_measure(model, dataset, job))
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
