from datetime import UTC, datetime, timedelta, timezone

import pytest

from cli.commands.jobs import parse_time
from cli.local.errors import BadInputError

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("30m", NOW - timedelta(minutes=30)),
        ("6h", NOW - timedelta(hours=6)),
        ("2d", NOW - timedelta(days=2)),
        ("1w", NOW - timedelta(days=7)),
        ("2026-03-01T10:00:00Z", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00+02:00", datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=2)))),
        ("2026-03-01", datetime(2026, 3, 1).astimezone()),
        ("2026-03-01 10:30", datetime(2026, 3, 1, 10, 30).astimezone()),
    ],
)
def test_a_time_is_a_duration_before_now_or_a_date(text: str, time: datetime) -> None:
    assert parse_time(text, "--since", NOW) == time


@pytest.mark.parametrize("text", ["", "2", "d", "-2d", "2 days", "yesterday", "2026-02-30", "99999999d", "1e3d"])
def test_what_is_no_time_is_said_with_examples(text: str) -> None:
    with pytest.raises(BadInputError, match=r"--since: .* is not a time \(valid: 30m, 6h, 2d, 1w, or a date"):
        parse_time(text, "--since", NOW)
