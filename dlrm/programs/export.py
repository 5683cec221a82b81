"""Exports a model: `python -m dlrm.programs.export RUN_DIRECTORY --checkpoint NAME --output DIRECTORY`.

`python -m dlrm.programs.export MODEL --to-hub DIRECTORY` writes a finished model for the Hugging Face Hub instead, with
the metrics that it has.

Writes the model directory that a run writes at its end, and prints one line of JSON: the step, and the metrics on the
rows that the run held out. The metrics are from the evaluation after that step if the run made one; otherwise the model
is measured here. Simple models that the run has measured on these rows stay beside them. A fault gives one line on
stderr, and bad input exit code 64.
"""

import argparse
import json
import sys
from pathlib import Path

from dlrm.data.errors import DataError
from dlrm.exported_model.assemble import make_output_map
from dlrm.exported_model.export import ExportError, export_model
from dlrm.exported_model.hub import write_hub_directory
from dlrm.exported_model.layout import METRICS
from dlrm.exported_model.load import ModelError
from dlrm.exported_model.refine import name_uncalibrated
from dlrm.exported_model.run_checkpoint import RunCheckpoint, open_run_checkpoint
from dlrm.programs.evaluate import measure, tell
from dlrm.programs.json_lines import fail
from dlrm.record import BLEND_SHARE, EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, RunDirectory, find_yardsticks
from dlrm.train.final_metrics import count_model_size, make_final_metrics
from hostinfo.fast_exit import skip_last_collection


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="directory of a run; of a model with --to-hub")
    parser.add_argument("--checkpoint", default="newest", help="as `dlrm.record.find_checkpoint` finds it")
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("--output", type=Path, help="directory to write; must not exist")
    output.add_argument("--to-hub", type=Path, help="directory to write for the Hub; must not exist")
    arguments = parser.parse_args()
    try:
        if arguments.to_hub is not None:
            config, metrics = write_hub_directory(arguments.source, arguments.to_hub)
            print(json.dumps({"step": config.step, **metrics}))  # noqa: T201
            return EXIT_DONE
        run = RunDirectory(arguments.source)
        checkpoint = open_run_checkpoint(run, arguments.checkpoint, tell)
        metrics = _find_metrics(checkpoint) | _read_yardsticks(run)
        resolved, dataset = checkpoint.resolved, checkpoint.dataset
        export_model(
            checkpoint.path,
            arguments.output,
            resolved,
            dataset,
            metrics,
            checkpoint.first_order,
            checkpoint.recalibration,
        )
    except (DataError, ModelError, OSError) as error:
        # What cannot be read is the wrong path or damaged; what cannot be written is not.
        return fail(error, EXIT_FAILED if isinstance(error, ExportError) else EXIT_BAD_INPUT)
    print(json.dumps({"step": checkpoint.progress.step, **metrics}))  # noqa: T201
    return EXIT_DONE


def _find_metrics(checkpoint: RunCheckpoint) -> dict[str, float | None]:
    """Return the metrics of the model of a checkpoint, by name; measured now where its run has not evaluated it, or not
    as the blend that is exported."""
    progress, blend = checkpoint.progress, checkpoint.blend
    size = count_model_size(checkpoint.resolved.job, checkpoint.dataset.schema)
    # A run that follows files holds out no rows: its last evaluation says most.
    is_followed = checkpoint.dataset.growing is not None
    metrics = make_final_metrics(progress, progress.last_evaluation, progress.step if is_followed else None) | size
    is_refined = checkpoint.first_order is not None or checkpoint.recalibration is not None
    if (progress.evaluated_step != progress.step and not is_followed) or is_refined:
        # What the last evaluation found on training and validation rows is not of this model.
        validation = ("validation_auc", "validation_calibration", "validation_log_loss")
        metrics |= dict.fromkeys(("train_auc", "train_log_loss", *validation))
        model = checkpoint.load_model()
        metrics |= {"model_step": progress.step} | measure(model, [])
        if checkpoint.recalibration is not None:
            model.module.output_map = make_output_map(model.config.data.negative_sampling, None)
            metrics |= name_uncalibrated(measure(model, []))
    if blend is not None:
        metrics |= {"validation_log_loss": blend.log_loss, BLEND_SHARE: blend.share}
    return metrics


def _read_yardsticks(run: RunDirectory) -> dict[str, float | None]:
    """Return the metrics of the simple models that the run has compared its own model with; empty before its end."""
    path = run.model / METRICS
    measured = find_yardsticks(json.loads(path.read_bytes())) if path.exists() else []
    return {name: value for result in measured for name, value in result.to_metrics().items()}


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
