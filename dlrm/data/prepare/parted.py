"""All parts of a preparation, and which of their rows are for training and which for evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrm.config import SchemaConfig
from dlrm.data.prepare.parts import PartRecord, StagedPart
from dlrm.data.split import Split


@dataclass(frozen=True)
class Part:
    """One part, in its place."""

    path: Path
    record: PartRecord
    start: int
    """Number of its first row, among those of the training files or among those of the evaluation files."""


@dataclass(frozen=True)
class StagedRows:
    """The parts, in order, training files before evaluation files."""

    schema: SchemaConfig
    parts: Sequence[Part]
    split: Split | None
    """Of the training files' rows; None where evaluation rows have files of their own."""

    @property
    def num_good_rows(self) -> int:
        return sum(part.record.num_good_rows for part in self.parts)

    @property
    def num_bad_rows(self) -> int:
        return sum(part.record.num_bad_rows for part in self.parts)

    def open(self, part: Part) -> StagedPart:
        return StagedPart(part.path, self.schema)

    def is_held_out(self, part: Part, staged: StagedPart) -> NDArray[np.bool_]:
        """[num_good_rows of the part]"""
        if part.record.is_evaluation or self.split is None:
            return np.full(part.record.num_good_rows, part.record.is_evaluation)
        is_held_out = self.split.is_held_out(part.start, part.start + part.record.num_rows)
        return is_held_out if staged.good is None else is_held_out[staged.good]
