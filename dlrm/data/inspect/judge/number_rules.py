"""Rules for columns of numbers: are they ids, quantities, or row numbers?

What a column predicts decides, if it is certain:

- If the rate of each value predicts better than the rates of ranges of values, the values are ids: neighbours differ.
  They are a number as well if their order has a good part of the gain.
- If ranges or the order predict, the column is a quantity: a number, and ranges of it.
- If ranges and ids are equally good and there are few values, they are ids; more than a handful are a quantity if
  their order has a good part of the gain.

If nothing is certain, looks decide: ids are called so, are spread evenly with gaps between them, or are few.
"""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config.schema import MAX_RANGES
from dlrm.data.inspect.judge.choice import Choice, Settings, format_aucs, format_missing, leave_out
from dlrm.data.inspect.judge.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.judge.prediction import (
    Prediction,
    assign_ranges,
    merge_neighbours,
    predict_by_group,
    predict_by_number,
    predict_by_value,
)
from dlrm.data.inspect.sample.file_sample import format_entry

MAX_HANDFUL = 10
"""Largest number of distinct numbers that are ids alone, however well their order predicts."""
MAX_FEW_VALUES = 50
"""Largest number of distinct whole numbers that are taken for ids if nothing else decides."""
MIN_REPEATS = 1.2
"""Least mean number of rows with the value of a row, in all files, from which ids can be learned."""
MIN_ROWS_FOR_UNIQUENESS = 100
"""Least number of present values from which a different value in every row is not considered accidental."""
MIN_TAIL, HEAVY_TAIL = 3.0, 10.0
"""Least ratios of the 99th percentile to the median (at least 1) for a tail, and for a heavy tail."""
GAP = 100.0
"""Ratio of the range of whole numbers to the number of distinct ones above which most numbers of the range are
missing."""
_MIN_EVEN_VALUES = 20
"""Least number of distinct values from which it is judged whether they are evenly spread."""
_MIN_ID_REPEATS = 5.0
"""Least mean number of rows with the value of a row for whole numbers to pass for ids although they predict nothing."""
_EVENNESS = 0.1
"""Largest distance of the quartiles of evenly spread values from a uniform distribution's, as a share of the range."""
_ORDER_SHARE = 0.3
"""Least share of the gain of the ids that the order of the values alone must have to be used beside them."""
_ROOM = 1.5
"""Number of exact ranges for each distinct value of the sample, since the files may have more."""
_MIN_AUC_GAIN = 0.01
"""Least difference of the AUCs as ids and as chosen that is worth a warning."""
_Use = Literal["ids", "number", "ranges"]
_ID_NAME = re.compile(
    r"(^|[_ .-])(id|ids|uid|uuid|guid|key|hash|code|idx|index|zip|zip ?code|post ?code|fips|sku|isbn|ean|asin)$"
    r"|[a-z](Id|ID|Key|Hash|Code|Zip)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Measured:
    """Held-out predictions of the label by a column of numbers, used in each way."""

    ids: Prediction | None
    ranges: Prediction
    number: Prediction
    prefers_log: bool
    """Whether the logarithm predicts better than the number."""

    @property
    def best(self) -> Prediction:
        found = [prediction for prediction in (self.ids, self.ranges, self.number) if prediction is not None]
        return max(found, key=lambda prediction: prediction.gain.mean)

    @property
    def ids_are_better(self) -> bool:
        return self.ids is not None and self.ids.gain.is_certain and self.ids.compare(self.ranges).is_certain

    @property
    def ranges_are_better(self) -> bool:
        return self.ranges.gain.is_certain and (self.ids is None or self.ranges.compare(self.ids).is_certain)

    @property
    def order_tells(self) -> bool:
        """Whether the order alone has a good part of the column's gain."""
        return self.number.gain.is_certain and self.number.gain.mean >= _ORDER_SHARE * self.best.gain.mean


def choose_for_numbers(
    column: EncodedColumn, description: str, rows: LabelledRows, id_settings: Settings | None
) -> Choice:
    """Choose the uses of a column of at least two distinct numbers without extremes (see `find_extremes`).

    description: type and values of the column, for the reason. id_settings: settings of the column as ids; None if some
    number is beyond 64 bits.
    """
    name, numbers = column.name, column.distinct.cast(pl.Float64).to_numpy()
    description += format_missing(column.missing_share)
    is_whole = bool(np.all(numbers == np.floor(numbers)))
    if is_whole and _is_row_number(column, numbers, rows.num_rows):
        return leave_out(name, f"{description}: a different value in every row, as row numbers have")
    measured = _measure(column, numbers, rows, with_ids=is_whole) if rows.can_measure else None
    auc = None if measured is None else measured.best.auc
    predicts = measured is not None and measured.best.gain.is_certain
    repeats = rows.estimate_repeats(column)
    look = _describe_look_of_ids(name, numbers) if is_whole else ""
    has_id_look = bool(look)
    if look and not predicts and repeats < MIN_REPEATS and column.num_present >= MIN_ROWS_FOR_UNIQUENESS:
        return leave_out(name, f"{description}: nearly every row has its own value", auc=auc)
    if is_whole and not look and not predicts and repeats >= _MIN_ID_REPEATS and _are_evenly_spread(numbers):
        look = "evenly spread, without an order that tells"
    uses = _decide(measured, column.num_distinct, looks_like_ids=bool(look), is_whole=is_whole)
    warning = _warn_of_ids(name, measured, uses)
    dense: Settings | None = None
    categorical: list[Settings] = []
    if "ids" in uses:
        is_float = column.distinct.dtype.is_float()
        # Ranges that are as good as ids: one for each distinct value, with room for values outside the sample.
        num_exact = min(2 ** int(np.ceil(np.log2(_ROOM * column.num_distinct))), MAX_RANGES)
        # What is stored as floats is more often a quantity than what is stored as integers, and later rows may have
        # other numbers than whole ones, which are no ids.
        is_covered = is_float and not has_id_look and column.num_distinct <= MAX_RANGES / _ROOM
        categorical.append({"bucketize": num_exact} if id_settings is None or is_covered else id_settings)
        if is_float and not look and column.num_distinct > MAX_HANDFUL:
            uses = {"number", *uses}
    if "ranges" in uses and rows.num_ranges is not None:
        categorical.append({"bucketize": rows.num_ranges})
    if "number" in uses:
        dense = {"transform": _choose_transform(column, numbers, measured)}
    description += f", {look}" if "ids" in uses and look else ""
    if measured is not None:
        uses_measured = {"as ids": measured.ids, "as ranges": measured.ranges, "as a number": measured.number}
        description += format_aucs(uses_measured)
    return Choice(name, description, dense, categorical, auc=auc, warning=warning)


def _decide(measured: _Measured | None, num_distinct: int, *, looks_like_ids: bool, is_whole: bool) -> set[_Use]:
    """Decide how a column of numbers is used."""
    if measured is not None:
        if measured.ids_are_better:
            return {"ids", "number"} if measured.order_tells and not looks_like_ids else {"ids"}
        if looks_like_ids:
            return {"ids", "ranges"} if measured.ranges_are_better and num_distinct > MAX_FEW_VALUES else {"ids"}
        if num_distinct > MAX_HANDFUL and (measured.ranges_are_better or measured.order_tells):
            return {"number", "ranges"}
    if looks_like_ids or (is_whole and num_distinct <= MAX_FEW_VALUES):
        return {"ids"}
    return {"number", "ranges"}


def _measure(encoded: EncodedColumn, numbers: NDArray[np.float64], rows: LabelledRows, *, with_ids: bool) -> _Measured:
    order = np.argsort(numbers)
    ascending = numbers[order]
    counts = rows.count(encoded).reorder(np.append(order, len(numbers)))
    ids = predict_by_value(counts) if with_ids else None
    if not with_ids:
        counts, ascending, _ = merge_neighbours(counts, ascending)
    ranges = predict_by_group(counts, assign_ranges(ascending, counts, rows.num_ranges or MAX_HANDFUL))
    plain = predict_by_number(counts, ascending)
    if ascending[0] < 0:
        return _Measured(ids, ranges, plain, prefers_log=False)
    logarithm = predict_by_number(counts, np.log1p(ascending))
    is_better = logarithm.compare(plain).is_certain
    return _Measured(ids, ranges, logarithm if is_better else plain, prefers_log=is_better)


def _describe_look_of_ids(name: str, numbers: NDArray[np.float64]) -> str:
    """Describe why distinct whole numbers look like ids, by their name or their spread; empty if they do not."""
    if _ID_NAME.search(name):
        return "named as ids"
    has_gaps = np.ptp(numbers) > GAP * len(numbers)
    return "evenly spread with gaps, as hashes are" if has_gaps and _are_evenly_spread(numbers) else ""


def _are_evenly_spread(numbers: NDArray[np.float64]) -> bool:
    spread = np.ptp(numbers)
    # Distinct ids above 2^53 may be equal as float64.
    if len(numbers) < _MIN_EVEN_VALUES or not spread:
        return False
    quartiles = (np.quantile(numbers, (0.25, 0.5, 0.75)) - numbers.min()) / spread
    return bool(np.abs(quartiles - (0.25, 0.5, 0.75)).max() < _EVENNESS)


def _is_row_number(encoded: EncodedColumn, numbers: NDArray[np.float64], num_rows: int) -> bool:
    """Whether every row has its own number, and these ascend or are all numbers up to the number of rows."""
    if encoded.num_present < MIN_ROWS_FOR_UNIQUENESS or encoded.num_distinct < encoded.num_present:
        return False
    # The distinct values are in the order of the rows where each occurs once.
    steps = np.diff(numbers)
    return bool(np.all(steps > 0) or np.ptp(numbers) <= 1.05 * num_rows)


def _warn_of_ids(name: str, measured: _Measured | None, uses: set[_Use]) -> str:
    """Return a warning if ids predict better than the chosen uses; empty otherwise."""
    if measured is None or measured.ids is None or "ids" in uses or not measured.ids.gain.is_certain:
        return ""
    chosen = max(measured.ranges.auc, measured.number.auc)
    if measured.ids.auc < chosen + _MIN_AUC_GAIN:
        return ""
    figures = f"as ids it predicts the label with an AUC of {measured.ids.auc:.3f}, as chosen with {chosen:.3f}"
    line = format_entry(name, {"type": "integer"})
    return f"{figures}: if its numbers are ids, use {line} in data.schema.categorical instead"


def _choose_transform(encoded: EncodedColumn, numbers: NDArray[np.float64], measured: _Measured | None) -> str:
    """Choose `log` for numbers with a tail where it predicts better, and for counts with a heavy tail; otherwise
    `standardise`."""
    if numbers.min() < 0:
        return "standardise"
    middle, far = np.quantile(np.repeat(numbers, encoded.num_rows_of_value), (0.5, 0.99))
    tail = far / max(middle, 1.0)
    if measured is not None and measured.prefers_log and tail >= MIN_TAIL:
        return "log"
    is_count = bool(np.all(numbers == np.floor(numbers)))
    return "log" if is_count and tail >= HEAVY_TAIL else "standardise"
