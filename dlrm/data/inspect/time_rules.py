"""Rules for columns of times: which of their parts predict the label."""

from typing import get_args

import numpy as np
import polars as pl

from dlrm.config.time_format import TimePart, list_parts
from dlrm.data.inspect.choice import Choice, Settings, format_aucs, format_missing, leave_out
from dlrm.data.inspect.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.prediction import Prediction, predict_by_value
from dlrm.data.inspect.times import Times
from dlrm.data.raw.times import get_time_part

_HOUR_SECONDS, _DAY_SECONDS = 3600, 86_400
_PERIOD_DAYS: dict[TimePart, int] = {"hour": 1, "weekday": 7, "day": 31, "month": 365, "year": 3653}
"""Days that the times must cover for a part of them: in less than its period it only tells old rows from new ones. A
year never comes again; ten of them are those of births and the like, rather than the times of the rows themselves."""


def choose_for_times(column: EncodedColumn, times: Times, type_name: str, rows: LabelledRows) -> Choice:
    """Choose the parts of a column of times that predict the label. times: those of the distinct values."""
    seconds, form = times.seconds, times.time_format
    # Unlike those of Python, dates of numpy may be after the year 9999.
    dates = " to ".join(
        str(np.datetime64(int(end), "s").astype("datetime64[D]")) for end in (seconds.min(), seconds.max())
    )
    written = "" if form is None else f" written as {form}"
    description = f"{type_name}, times{written} from {dates}{format_missing(column.missing_share)}"
    # The last time lasts as well: a day, or with times of day an hour.
    last_seconds = _HOUR_SECONDS if np.any(seconds % _DAY_SECONDS) else _DAY_SECONDS
    num_days = (np.ptp(seconds) + last_seconds) / _DAY_SECONDS
    predictions: dict[str, Prediction] = {}
    chosen: list[Settings] = []
    parts = get_args(TimePart) if form is None else list_parts(form)
    # Times of day without a date tell nothing of how long they cover.
    num_days = np.inf if parts == ["hour"] else num_days
    for part in parts:
        of_value = EncodedColumn.encode(pl.Series(get_time_part(seconds, part)))
        if num_days < _PERIOD_DAYS[part] or of_value.num_distinct < 2:
            continue
        if rows.can_measure:
            codes = np.append(of_value.codes, -1)[column.codes]
            found = predict_by_value(rows.count(EncodedColumn(column.name, codes, of_value.distinct)))
            predictions[part] = found
            if not found.gain.is_certain:
                continue
        chosen.append({"time_part": part} if form is None else {"time_part": part, "time_format": form})
    figures = format_aucs(predictions)
    auc = max((found.auc for found in predictions.values()), default=None)
    if chosen:
        return Choice(column.name, description + figures, None, chosen, auc=auc)
    why = "no part of them predicts the label" if predictions else "they cover too short a time for hours or weekdays"
    return leave_out(column.name, f"{description}: {why}{figures.replace(':', ',', 1)}", auc=auc)
