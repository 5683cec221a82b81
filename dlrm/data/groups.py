"""Groups of rows by the value of a categorical feature, such as a user."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.rows import DataSchema, Rows, RowSource
from dlrm.metrics.grouped import compute_grouped_metrics
from dlrm.metrics.ranking import Vector

_READ_ROWS = 65_536


@dataclass(frozen=True)
class Grouping:
    """Groups of rows by the id of one feature, and the ranks within them at which recall is measured."""

    feature: int
    """Number of the feature."""
    first_id: int
    """First id that stands for a single value; those before it stand for missing and for rare or unknown ones."""
    recall_at: Sequence[int]

    def read(self, rows: Rows) -> NDArray[np.int64]:
        """Return the group [n] of each row, -1 where its value is shared with others."""
        start = int(rows.ids.lengths[: self.feature].sum(dtype=np.int64))
        ids = rows.ids.values[start : start + rows.num_rows].astype(np.int64)
        return np.where(ids < self.first_id, -1, ids)

    def read_source(self, source: RowSource) -> NDArray[np.int64]:
        """Read the group of each row of a source."""
        starts = range(0, source.num_rows, _READ_ROWS)
        numbers = (np.arange(start, min(start + _READ_ROWS, source.num_rows)) for start in starts)
        return np.concatenate([self.read(source.read(piece)) for piece in numbers])

    def measure(
        self, labels: Vector, scores: Vector, weights: Vector | None, groups: Vector
    ) -> dict[str, float | None]:
        """Compute the metrics of scores within groups, by name: see `compute_grouped_metrics`."""
        return compute_grouped_metrics(labels, scores, weights, groups, self.recall_at)


def find_grouping(
    group_by: str | None, recall_at: Sequence[int] | None, schema: DataSchema, encoders: Encoders | None
) -> Grouping | None:
    """Find the groups that `run.group_by` names; None if it is null. Raises DataError if there is no such feature.

    encoders: None for a synthetic log, whose ids all stand for single values.
    """
    if group_by is None:
        return None
    names = [feature.name for feature in schema.features]
    if group_by not in names or schema.features[names.index(group_by)].has_bags:
        single = [feature.name for feature in schema.features if not feature.has_bags]
        message = f"{group_by!r} is no categorical feature of one value a row"
        raise DataError(message, field="run.group_by", valid=" or ".join(["null", *single[:20]]))
    number = names.index(group_by)
    # The rows of shared ids come first, the row of missing values last among them.
    first_id = 0 if encoders is None else encoders.vocabularies[number].missing_ids[0] + 1
    return Grouping(number, first_id, recall_at or ())
