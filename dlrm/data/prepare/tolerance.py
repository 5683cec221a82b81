"""How many rows are bad, and whether they are too many."""

from collections.abc import Callable, Sequence

from dlrm.data.errors import DataError
from dlrm.data.raw.block import MAX_SHOWN_FAULTS


class BadRowCount:
    """Counts the bad rows of one reading."""

    def __init__(
        self, max_bad_fraction: float, note: Callable[[str], None], field: str = "data.max_bad_fraction"
    ) -> None:
        """note: is given the fault of each of the first bad rows. field: what set the share, for messages."""
        self._max_bad_fraction, self._note, self._field = max_bad_fraction, note, field
        self._num_rows = self._num_bad_rows = 0
        self._faults: list[str] = []

    def add(self, num_rows: int, num_bad_rows: int, faults: Sequence[str]) -> None:
        """num_rows: the bad ones included. faults: of the first bad ones."""
        self._num_rows += num_rows
        self._num_bad_rows += num_bad_rows
        for fault in faults[: MAX_SHOWN_FAULTS - len(self._faults)]:
            self._faults.append(fault)
            self._note(fault)

    def check(self) -> None:
        """Raises DataError where too many are bad. Once all are read: a part's share says nothing of that of all."""
        if self._num_bad_rows > self._max_bad_fraction * self._num_rows:
            raise DataError(
                f"{self._num_bad_rows:,} of {self._num_rows:,} rows are bad, the first one is {self._faults[0]}",
                field=self._field,
                valid=f"at most a share of {self._max_bad_fraction:g}, better files or a larger share",
            )
