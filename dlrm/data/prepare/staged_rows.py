"""All staged parts of a preparation, and the split of their rows into training and evaluation rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrm.config import SchemaConfig
from dlrm.data.prepare.part_files import PartRecord, StagedPart
from dlrm.data.raw.block import OddValues, add_odd_values
from dlrm.data.split import Split


@dataclass(frozen=True)
class Part:
    """One part and its position among the parts."""

    path: Path
    record: PartRecord
    start: int
    """Number of its first row, counted over the training files or over the evaluation files, bad rows included."""


@dataclass(frozen=True)
class StagedRows:
    """The parts of all files in order, training files before evaluation files."""

    schema: SchemaConfig
    parts: Sequence[Part]
    split: Split | None
    """Split of the training files' rows; None if evaluation rows have files of their own."""

    @property
    def num_good_rows(self) -> int:
        return sum(part.record.num_good_rows for part in self.parts)

    @property
    def num_bad_rows(self) -> int:
        return sum(part.record.num_bad_rows for part in self.parts)

    @property
    def odd_values(self) -> OddValues:
        total: OddValues = {}
        for part in self.parts:
            add_odd_values(total, part.record.odd_values)
        return total

    def open(self, part: Part) -> StagedPart:
        return StagedPart(part.path, self.schema)

    def is_held_out(self, part: Part, staged: StagedPart) -> NDArray[np.bool_]:
        """Whether each good row of the part is for evaluation: [num_good_rows] booleans."""
        if part.record.is_evaluation or self.split is None:
            return np.full(part.record.num_good_rows, part.record.is_evaluation)
        is_held_out = self.split.is_held_out(part.start, part.start + part.record.num_rows)
        return is_held_out if staged.good is None else is_held_out[staged.good]
