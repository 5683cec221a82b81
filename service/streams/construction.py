"""Parts that streams need, and their construction."""

from dataclasses import dataclass

from service.database import Database
from service.jobs.service import JobService
from service.observability.telemetry import Telemetry
from service.store.run_facts import RunFacts
from service.streams.feed import Feed
from service.streams.reader import ChangeReader
from service.streams.relay import Relay


@dataclass(frozen=True)
class Streams:
    """Parts that streams need."""

    feed: Feed
    reader: ChangeReader
    relay: Relay


def make_streams(database: Database, jobs: JobService, facts: RunFacts, telemetry: Telemetry) -> Streams:
    """Make the parts of streams, and let the relay note what changes in `database`."""
    reader = ChangeReader(database, jobs, facts)
    feed = Feed(reader)
    relay = Relay(database, feed)
    database.on_change = relay.note
    telemetry.streams_open.set_function(feed.count_streams)
    return Streams(feed, reader, relay)
