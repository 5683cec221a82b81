"""Numbers of ranks with which a run that was stopped can go on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cli.local.document_file import read_document
from cli.local.errors import BadInputError
from cli.local.set_option import apply_settings, name_source, parse_settings
from dlrm.config import FieldError, JobSpec, ResourcesConfig

MAX_SHOWN = 8


def require_dividing_ranks(run: JobSpec, job: Path | None, settings: Sequence[str] | None, path: Path) -> None:
    """Check that the ranks of a changed document divide the batches of the run, which cannot change.

    run: document of the run, in `path`. job: changed document; None for that of the run with `settings`, the arguments
    of `--set`. Raises BadInputError, which names ranks that do.
    """
    document: Mapping[str, Any] = run.model_dump(mode="json") if job is None else read_document(job)
    parsed = parse_settings(settings)
    try:
        resources = ResourcesConfig.model_validate(apply_settings(document, parsed).get("resources", {}))
    except ValidationError:
        # Told with the other faults of the document.
        return
    sizes = [(f"batch.{field}", size) for field, size in run.batch.list_sizes()]
    if run.moments is not None and run.moments.estimator == "groups":
        sizes.append(("moments.num_groups", run.moments.num_groups))
    for num_ranks in sorted({resources.least_world_size, resources.world_size}):
        for field, size in sizes:
            if size % num_ranks:
                message = f"{num_ranks} ranks do not divide the {field} of {size:,} with which the run began"
                fault = FieldError("resources.workers_per_node", message, _list_dividing(sizes, 2 * num_ranks))
                source = name_source("resources.workers_per_node", parsed, str(job or path))
                raise BadInputError(f"{source}: {fault}")


def _list_dividing(sizes: Sequence[tuple[str, int]], most: int) -> str:
    """List the largest numbers of ranks up to `most` that divide all sizes, such as `1, 2 or 4 ranks in all`."""
    dividing = [number for number in range(1, most + 1) if all(size % number == 0 for _, size in sizes)]
    *others, last = map(str, dividing[-MAX_SHOWN:])
    return f"{', '.join(others)} or {last} ranks in all" if others else "1 rank"
