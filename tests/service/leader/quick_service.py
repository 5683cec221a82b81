"""`python -m tests.service.leader.quick_service READY_FILE`: the service with short leases, and with a clock that is
wrong by DLRM_TEST_CLOCK_OFFSET_SECONDS."""

import sys
from pathlib import Path

from tests.service.chaos.shifted_service import shift_clock


def shorten_leases() -> None:
    """Shorten the time after which a process counts as stopped. Must come before the imports of what uses it."""
    from service.database import database
    from service.leader import leadership

    leadership.LEASE_SECONDS, leadership.MARGIN_SECONDS = 3.0, 1.0
    database.IDLE_TRANSACTION_SECONDS = 6.0


def main() -> None:
    shift_clock()
    shorten_leases()
    from service.serve import serve
    from service.settings import Settings

    serve(Settings(), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
