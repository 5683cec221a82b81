"""Measures how sharp the loss of the model that a run leaves is, in a process of its own, and says what came of it."""

import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dlrm.record import SHARPNESS_FAILED, SHARPNESS_FIGURES, Sharpness, SpoolReader
from dlrm.train.child_program import run_program
from dlrm.train.context import RunContext
from dlrm.train.finishing import SHARPNESS, Finishing

log = logging.getLogger(__name__)


def measure_chosen_model(
    context: RunContext, checkpoint: Path, metrics: Mapping[str, float | None], finishing: Finishing
) -> dict[str, float | None]:
    """Measure the sharpness of the model of a checkpoint, if the job asks for it, and return its metrics by name.

    metrics: AUC and log-loss of this model on the evaluation rows, among others. A failure is reported, and never
    raised. A stop request ends the measurement. Not collective.
    """
    if context.resolved.job.run.sharpness is None:
        return {}
    finishing.begin(SHARPNESS)
    try:
        measured = _run_program(context, checkpoint, finishing).to_metrics(metrics)
    except Exception as error:
        # Whatever it is, the model is trained and must be written.
        log.exception("the sharpness could not be measured")
        context.reporter.event(SHARPNESS_FAILED, f"the sharpness of the model is not known: {error}")
        return {}
    figures = [f"{SHARPNESS_FIGURES[name]} {value:.4g}" for name, value in measured.items() if value is not None]
    context.reporter.event(SHARPNESS, "; ".join(figures), **measured)
    return measured


def _run_program(context: RunContext, checkpoint: Path, finishing: Finishing) -> Sharpness:
    """Run the program that measures, and read its result.

    Raises RuntimeError if it fails, OSError if it cannot be started, and ValueError if it prints what is no result.
    """
    results: list[Sharpness] = []
    with tempfile.NamedTemporaryFile() as output:
        lines = SpoolReader(Path(output.name))

        def read() -> None:
            for line in lines.read():
                content = json.loads(line)
                if "done_fraction" in content:
                    finishing.move(content["done_fraction"], "")
                else:
                    results.append(Sharpness.model_validate(content))

        arguments = [str(context.directory.path), str(checkpoint)]
        failure = run_program("dlrm.programs.sharpness", arguments, context.stop, output=output, watch=read)
        read()
    if failure is not None:
        raise RuntimeError(f"the program that measures it {failure}")
    return results[0]
