"""Planning of a job: `python -m dlrm.programs.plan`. Imports no torch.

Reads one JSON document from stdin, `{"resolved": ResolvedJob, "run_directory": path or null, "limits": Limits or
null, "place": Place}`, and writes one line of JSON to stdout:

{"kind": "result", "resolved": the job with what its document left open decided, and with the chunk of the plan, null
 if the table sizes are not known, "num_steps": steps of the run, null if its rows are not known or the noise
 scale decides how its batch grows, "num_samples": samples of the run, null if its rows are not known,
 "training_seconds": estimated seconds of all steps, null if there is no plan, or `num_steps` is null, or the speed
 of the dense part is not known, "sizes_from": source of the table sizes, in words, "plan": a
 `sharding.planner.report.PlanReport`, "warnings": what a run would have too little of, "notes": what is estimated or
 assumed, and obstacles to a run on this machine, "part_of_term": the part of a run's clock to which each term of the
 step belongs, "refusal": a `PlanError` if there is no plan, "unknown_sizes": reason why the table sizes are not
 known, if they are not, "seconds": time that the planning took}

Bad input gives one line on stderr and exit code 64, and so does a plan beyond the limits, which a service sets.
"""

import json
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from dlrm.config import ConfigError, DataFacts, ModelConfig, ResolvedJob, resolve_with_rows
from dlrm.config.patterns import is_remote
from dlrm.data.errors import DataError
from dlrm.planning.machine_resources import (
    MachineResources,
    check_precision,
    describe_machine,
    describe_machine_elsewhere,
)
from dlrm.planning.plan_notes import list_plan_notes
from dlrm.planning.request import make_checked_plan
from dlrm.planning.run_time import estimate_training_seconds
from dlrm.planning.shortages import count_run_samples, count_run_steps, list_run_stages, list_shortages
from dlrm.planning.sizes import Sizes, UnknownSizesError
from dlrm.planning.table_sizes import Place, ReadSource, find_table_sizes
from dlrm.programs.json_lines import fail
from dlrm.record import ModelRecord, NoModelError, RunDirectory, TrainedModel
from dlrm.trackers.packages import check_packages
from dlrm.train.warm_start.source import make_source_error
from hostinfo.fast_exit import skip_last_collection
from hostinfo.process_memory import limit_memory
from sharding.planner import PlanError
from sharding.planner.report import PART_OF_TERM, make_plan_report

NO_TRAINER = (
    "the trainer, which reads the sizes of tables, is not installed here: pip install --no-deps -r "
    "requirements/cpu.txt (cuda.txt for NVIDIA GPUs), from the source tree"
)


class Limits(TypedDict):
    """Limits of one plan."""

    memory_bytes: int
    """Bytes of memory on top of what the program uses once it knows the tables."""
    answer_bytes: int
    """Bytes of the line that the program writes."""


class TooLargeError(ValueError):
    """Error of a plan beyond the limits."""

    def __init__(self, num_ranks: int, num_tables: int) -> None:
        super().__init__(
            f"resources: a plan of {num_ranks:,} ranks and {num_tables:,} tables needs more memory than the service "
            "allows for one plan (valid: fewer ranks or tables; `dlrm plan` has no such limit)"
        )


RESULT_FIELDS = (
    "resolved",
    "num_steps",
    "num_samples",
    "training_seconds",
    "sizes_from",
    "plan",
    "warnings",
    "notes",
    "part_of_term",
    "refusal",
    "unknown_sizes",
)
"""Fields of a result that are null if they are not known."""


def make_plan_line(
    resolved: ResolvedJob, run_directory: RunDirectory | None, limits: Limits | None = None, place: Place = "here"
) -> str:
    """Plan a job and return the result line. Raises ConfigError, DataError, TooLargeError and ImportError."""
    started = time.perf_counter()
    if place == "here":
        check_packages(resolved.job.run.trackers)
    fields: dict[str, Any] = dict.fromkeys(RESULT_FIELDS)
    read_source = cache(lambda: _read_source(resolved))
    try:
        sizes = find_table_sizes(resolved, run_directory, place, read_source)
    except UnknownSizesError as error:
        return _format_line({**fields, "unknown_sizes": str(error)}, started)
    resolved = _decide_open_fields(resolved, sizes, place, read_source)
    sizes = sizes.with_dims(resolved.job.model)
    # Before memory is limited, since the measurement of the machine needs memory too.
    machine = describe_machine(resolved.job) if place == "here" else describe_machine_elsewhere(resolved.job)
    too_large = TooLargeError(resolved.job.resources.world_size, len(sizes.tables))
    if limits is not None:
        limit_memory(limits["memory_bytes"])
    try:
        fields["resolved"] = resolved.model_dump(mode="json")
        if sizes.rows is not None:
            fields["num_steps"] = count_run_steps(resolved.job, sizes.rows)
            fields["num_samples"] = count_run_samples(resolved.job, sizes.rows)
        line = _format_line({**fields, **_make_plan(resolved, sizes, machine)}, started)
    except MemoryError:
        raise too_large from None
    if limits is not None and len(line) > limits["answer_bytes"]:
        raise too_large
    return line


def _format_line(fields: dict[str, Any], started: float) -> str:
    return json.dumps({"kind": "result", **fields, "seconds": time.perf_counter() - started}, allow_nan=False)


def _make_plan(resolved: ResolvedJob, sizes: Sizes, machine: MachineResources) -> dict[str, Any]:
    try:
        request, plan = make_checked_plan(resolved, sizes.tables, sizes.num_dense, machine, sizes.sequences)
    except PlanError as error:
        return {"sizes_from": sizes.source, "refusal": error.as_dict()}
    report = make_plan_report(request, plan)
    # None if the steps cannot be known before the run.
    stages = None if sizes.rows is None else list_run_stages(resolved.job, sizes.rows)
    resolved = resolved.with_planned_chunk(request.chunk_size)
    return {
        "resolved": resolved.model_dump(mode="json"),
        "training_seconds": None
        if stages is None
        else estimate_training_seconds(resolved, sizes, machine, plan, stages),
        "sizes_from": sizes.source,
        "plan": report.as_json(),
        "warnings": _list_warnings(resolved, sizes, machine),
        "notes": list_plan_notes(resolved.job, sizes, machine, report),
        "part_of_term": PART_OF_TERM,
    }


def _list_warnings(resolved: ResolvedJob, sizes: Sizes, machine: MachineResources) -> list[str]:
    """List what the author of the document may not expect of a run, a sentence each."""
    shortages = list_shortages(resolved.job, sizes.rows) if sizes.rows else []
    slow = check_precision(resolved.job, machine.has_bf16_products)
    return [warning.message for warning in (*resolved.warnings, *shortages, *([slow] if slow else []))]


def _decide_open_fields(resolved: ResolvedJob, sizes: Sizes, place: Place, read_source: ReadSource) -> ResolvedJob:
    """Decide what the document left open, as a run would; unchanged where the number of rows is unknown."""
    if resolved.asked is None or sizes.rows is None:
        return resolved
    source = _read_source_model(resolved, place, read_source)
    facts = DataFacts(num_train_rows=sizes.rows.num_train_rows, source=source)
    return resolve_with_rows(resolved, facts)


def _read_source_model(resolved: ResolvedJob, place: Place, read_source: ReadSource) -> ModelConfig | None:
    """Read the dimensions of the model that the job starts from; None if it starts from none, or is not found."""
    warm_start = resolved.job.run.warm_start
    if warm_start is None or (place == "unseen" and not is_remote(warm_start.source)):
        return None
    try:
        return ModelConfig.model_validate(read_source().model)
    except ValueError:
        # The run itself refuses such a model, with the reason.
        return None


def _read_source(resolved: ResolvedJob) -> ModelRecord:
    """Read the record of the model that the job starts from. Raises DataError."""
    assert resolved.job.run.warm_start is not None, "there is a warm start"
    name = resolved.job.run.warm_start.source
    try:
        with _open_source(name) as path:
            return TrainedModel.find(path).read_record()
    except (NoModelError, ValueError, OSError) as error:
        raise make_source_error(name, str(error)) from None


@contextmanager
def _open_source(name: str) -> Generator[Path]:
    """Yield the directory of a model, or one with the record of a model in a bucket. Raises ValueError and OSError."""
    if not is_remote(name):
        yield Path(name)
        return
    # Imported late: it takes most of a second, which other plans need not wait for.
    from dlrm.programs.run_store import CHECK_SECONDS, fetch_one_model
    from dlrm.run_store.fetch import Retries

    with tempfile.TemporaryDirectory(prefix="dlrm-model-") as temporary:
        fetch_one_model(name, Path(temporary), Retries(lambda _: None, CHECK_SECONDS), is_record_enough=True)
        yield Path(temporary)


def main() -> int:
    request = json.load(sys.stdin)
    run_directory = request["run_directory"] and RunDirectory(Path(request["run_directory"]))
    try:
        resolved = ResolvedJob.model_validate(request["resolved"])
        line = make_plan_line(resolved, run_directory, request["limits"], request["place"])
    # OSError comes from a disk or a store that fails while it is read.
    except (ConfigError, DataError, OSError, TooLargeError) as error:
        return fail(error)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("dlrm", "sharding"):
            raise
        return fail(NO_TRAINER)
    sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
