"""Work before the ranks: the model to start from is fetched, rows are prepared, and open fields are decided."""

import tempfile
from pathlib import Path

from dlrm.config import DataFacts, ModelConfig, ResolvedJob, count_synthetic_train_rows, resolve_with_rows
from dlrm.config.patterns import is_remote
from dlrm.data.packed.layout import open_packed_meta
from dlrm.launch.outcomes import make_stopped_outcome
from dlrm.record import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_STOPPED,
    EndReason,
    Outcome,
    PreparedData,
    RunDirectory,
    write_atomically,
)
from dlrm.train.warm_start.source import find_source, read_record
from hostinfo.child import describe_exit, run_child
from hostinfo.stop_signals import STOP_SIGNALS


def fetch_source(directory: RunDirectory, number: int, resolved: ResolvedJob, rank: int) -> Outcome | None:
    """Fetch the model from which attempt `number` starts, if it is in a bucket and no earlier attempt has.

    rank: the first one of this node, whose log gets the output. Returns the outcome if that ends the attempt.
    """
    warm_start = resolved.job.run.warm_start
    if warm_start is None or not is_remote(warm_start.source) or directory.source.exists():
        return None
    arguments = ["fetch", warm_start.source, str(directory.source), "--what", "source"]
    arguments += ["--optimizer-state"] if warm_start.optimizer_state else []
    log = directory.attempt(number).rank_log(rank)
    with log.open("ab") as output, tempfile.TemporaryFile("w+", errors="replace") as errors:
        code = run_child("dlrm.programs.run_store", arguments, output=output, errors=errors)
        errors.seek(0)
        lines = errors.read().strip().splitlines()
        output.write("".join(f"{line}\n" for line in lines).encode())
    fault = lines[-1] if lines else f"the fetch {describe_exit(code)}"
    return _find_early_outcome(code, "fetching the model to start from", f"run.warm_start.from: {fault}"[:2000])


def prepare_data(directory: RunDirectory, number: int, rank: int) -> Outcome | None:
    """Prepare the rows for attempt `number`; return the outcome if that ends the attempt.

    rank: the first one of this node, whose log and reports get the output.
    """
    arguments = [str(directory.path), "--attempt", str(number), "--rank", str(rank)]
    with directory.attempt(number).rank_log(rank).open("ab") as output:
        code = run_child("dlrm.programs.prepare_run", arguments, output=output, errors=output)
    # The preparation writes a more precise outcome itself, unless the disk is full.
    return _find_early_outcome(code, "preparing the data", f"data preparation {describe_exit(code)}")


def _find_early_outcome(code: int, work: str, fault: str) -> Outcome | None:
    """Return the outcome of an attempt that ends with the exit code of a program before its ranks; None if it goes on.

    work: what the program does. fault: message if it has failed.
    """
    if code == EXIT_DONE:
        return None
    if code == EXIT_STOPPED or -code in STOP_SIGNALS:
        return make_stopped_outcome(f"stopped while {work}")
    reason = EndReason.BAD_INPUT if code == EXIT_BAD_INPUT else EndReason.WORKER_CRASHED
    return Outcome(state="failed", reason=reason, message=fault)


def decide_open_fields(directory: RunDirectory, resolved: ResolvedJob) -> ResolvedJob:
    """Decide the open fields of a run's document, write it to the run directory, and return it.

    A document that was decided for an earlier attempt stays as it is. Raises DataError and OSError.
    """
    if resolved.asked is None:
        return resolved
    decided = resolve_with_rows(resolved, _find_facts(directory, resolved))
    write_atomically(directory.spec, decided.model_dump_json(indent=1))
    return decided


def _find_facts(directory: RunDirectory, resolved: ResolvedJob) -> DataFacts:
    source = find_source(resolved, directory)
    model = None if source is None else ModelConfig.model_validate(read_record(source).model)
    if resolved.job.data.synthetic is not None:
        return DataFacts(num_train_rows=count_synthetic_train_rows(resolved.job.data), source=model)
    prepared = PreparedData.read(directory.data)
    assert prepared is not None, "rows are prepared before anything is decided by them"
    if resolved.job.data.follow is not None:
        # Imported late: libraries that read rows take memory for as long as the ranks train.
        from dlrm.data.follow.ledger import Ledger

        # The first rows alone, so that the decisions do not depend on how many others have come.
        return DataFacts(num_train_rows=Ledger.open(directory.prepared).pieces[0].num_rows, source=model)
    meta = open_packed_meta(Path(prepared.directory))
    return DataFacts(num_train_rows=meta.splits["train"].num_rows, source=model)
