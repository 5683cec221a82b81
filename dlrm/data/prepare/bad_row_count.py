"""The limit on the share of bad rows."""

from collections.abc import Callable, Sequence

from dlrm.config import format_count
from dlrm.data.errors import DataError
from dlrm.data.raw.block import MAX_SHOWN_FAULTS


class BadRowCount:
    """Counts bad rows and checks their share once all rows are read."""

    def __init__(
        self, max_bad_fraction: float, note: Callable[[str], None], field: str = "data.max_bad_fraction"
    ) -> None:
        """Start with no rows.

        note: called with the error message of each of the first bad rows. field: field of the job document, or option,
        that sets `max_bad_fraction`, for the error.
        """
        self._max_bad_fraction, self._note, self._field = max_bad_fraction, note, field
        self._num_rows = self._num_bad_rows = 0
        self._faults: list[str] = []

    def add(self, num_rows: int, num_bad_rows: int, faults: Sequence[str]) -> None:
        """Add the counts of some rows. num_rows: bad rows included. faults: error messages of the first bad rows."""
        self._num_rows += num_rows
        self._num_bad_rows += num_bad_rows
        for fault in faults[: MAX_SHOWN_FAULTS - len(self._faults)]:
            self._faults.append(fault)
            self._note(fault)

    def check(self) -> None:
        """Raise DataError where too large a share of the rows is bad.

        Call it once all rows are added: the share in some of the rows says little about the share in all.
        """
        if self._num_bad_rows > self._max_bad_fraction * self._num_rows:
            verb = "is" if self._num_bad_rows == 1 else "are"
            share = f"{self._num_bad_rows:,} of {format_count(self._num_rows, 'row')}"
            raise DataError(
                f"{share} {verb} bad; the first is {self._faults[0]}",
                field=self._field,
                valid=f"a share of at most {self._max_bad_fraction:g}: correct the files, or allow a larger share",
            )
