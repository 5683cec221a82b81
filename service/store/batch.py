"""The batch of a job, once it is known."""

from collections.abc import Mapping
from typing import Any

from dlrm.config import BATCH_FIELD


def find_batch(document: Mapping[str, Any], resolved: Mapping[str, Any]) -> int | None:
    """Return the samples of the largest batch of a job; None while the resolved document has the one for unknown rows.

    document: job document. resolved: resolved document, with what a run has decided once it has.
    """
    decided = {number["name"]: number["value"] for number in resolved["derived"]}
    size = resolved["job"]["batch"]["global_size"]
    return size if size in (document["batch"]["global_size"], decided.get(BATCH_FIELD)) else None
