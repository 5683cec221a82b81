"""Work of the leader for webhooks: it makes deliveries of new events, and sends them.

One transaction makes deliveries and moves the webhook's last event on: no change of state is left out or comes as two
deliveries, whenever the service stops. A delivery is removed once a receiver has answered with success. So a request
may come twice, with the same id.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import structlog

from service.database import Database
from service.http.request_origin import Network
from service.keys.repository import KeyRepository
from service.keys.service import RefusedError, check_key
from service.store.job_repository import JobRepository
from service.times import now
from service.webhooks.messages import make_change
from service.webhooks.models import Delivery, Webhook
from service.webhooks.post import UndeliveredError, post, sign
from service.webhooks.repository import DeliveryRepository, WebhookRepository

log = structlog.get_logger(__name__)

FIRST_RETRY = timedelta(seconds=5)
"""Time until the second try; it doubles with every further one."""
LAST_RETRY = timedelta(hours=1)
"""Longest time between two tries."""
LIFETIME = timedelta(days=1)
"""Time after which a delivery is given up."""
MAX_CHANGES = 500
"""Number of events that one transaction makes deliveries of at most."""
MAX_IN_A_ROW = 20
"""Number of deliveries that one webhook gets in a turn at most; a turn ends with the first failure."""
MAX_TURN_SECONDS = 10.0
"""Seconds after which a webhook's turn begins no further delivery."""
MAX_AT_ONCE = 16
"""Number of webhooks that are sent to at the same time."""
MAX_RESULT = 300
"""Characters of the result of a try that are kept."""
GONE = 410
"""Status by which a receiver says that it wants nothing any more."""


class WebhookSender:
    """Sender of all deliveries, in threads of its own.

    A slow receiver holds up nothing else: no new events, and no other webhook, unless MAX_AT_ONCE of them are slow.
    """

    def __init__(
        self, database: Database, networks: Sequence[Network], interval_seconds: float, is_leader: Callable[[], bool]
    ) -> None:
        """Look for new events every `interval_seconds` while `is_leader` says so.

        networks: where requests may go although it is not public.
        """
        self._database = database
        self._networks = networks
        self._interval_seconds = interval_seconds
        self._is_leader = is_leader
        self._is_stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=lambda: asyncio.run(self._run()), name="webhooks", daemon=True).start()

    def stop(self) -> None:
        """Stop sending. A request on its way is given up: its delivery stays, and is sent again."""
        self._is_stopping.set()

    def run_once(self) -> None:
        """Make the deliveries of all new events, and send what is due, once each."""

        async def send() -> None:
            tasks: dict[str, asyncio.Task[None]] = {}
            self._start_turns(tasks, asyncio.Semaphore(MAX_AT_ONCE))
            await asyncio.gather(*tasks.values())

        self._collect()
        asyncio.run(send())

    async def _run(self) -> None:
        slots = asyncio.Semaphore(MAX_AT_ONCE)
        tasks: dict[str, asyncio.Task[None]] = {}
        while not self._is_stopping.is_set():
            if self._is_leader():
                with _guard():
                    # In a thread of its own: many events keep no answer waiting.
                    await asyncio.to_thread(self._collect)
                with _guard():
                    self._start_turns(tasks, slots)
            await asyncio.sleep(self._interval_seconds)

    def _start_turns(self, tasks: dict[str, asyncio.Task[None]], slots: asyncio.Semaphore) -> None:
        """Let every webhook with something due have a turn, unless it has one already.

        tasks: turns by webhook; those that have ended are removed.
        """
        for webhook_id in [webhook_id for webhook_id, task in tasks.items() if task.done()]:
            del tasks[webhook_id]
        with self._database.read() as session:
            due = DeliveryRepository(session).list_webhooks_with_due(now())
        for webhook in due:
            if webhook.id not in tasks:
                tasks[webhook.id] = asyncio.create_task(self._send_in_turn(webhook, slots))

    def _collect(self) -> None:
        with self._database.read() as session:
            newest = JobRepository(session).find_newest_event()
            behind = [
                webhook.id for webhook in WebhookRepository(session).list_active() if webhook.last_event_id < newest
            ]
        for webhook_id in behind:
            while not (self._is_stopping.is_set() or self._collect_some(webhook_id, newest)):
                pass

    def _collect_some(self, webhook_id: str, newest: int) -> bool:
        """Make deliveries of some events up to `newest`; return whether that is done."""
        with self._database.write() as session:
            webhooks = WebhookRepository(session)
            webhook = webhooks.get(webhook_id)
            if webhook is None:
                return True
            try:
                check_key(KeyRepository(session).get(webhook.key_id), now())
            except RefusedError as refusal:
                webhooks.stop(webhook_id, f"the key that made it: {refusal}")
                return True
            changes = webhooks.list_changes(webhook, newest, MAX_CHANGES)
            jobs = JobRepository(session)
            labels = {job_id: jobs.get_labels(job_id) for job_id in {job.id for _, job in changes}}
            DeliveryRepository(session).add(
                [
                    make_change(webhook, event, job, labels[job.id])
                    for event, job in changes
                    if webhook.labels.items() <= labels[job.id].items()
                ]
            )
            is_done = len(changes) < MAX_CHANGES
            webhooks.update(webhook_id, last_event_id=newest if is_done else changes[-1][0].id)
            return is_done

    async def _send_in_turn(self, webhook: Webhook, slots: asyncio.Semaphore) -> None:
        """Send the deliveries of a webhook that are due, oldest first, up to the first failure."""
        async with slots:
            with _guard():
                with self._database.read() as session:
                    due = DeliveryRepository(session).list_due(webhook.id, now(), MAX_IN_A_ROW)
                until = time.monotonic() + MAX_TURN_SECONDS
                for delivery in due:
                    is_over = self._is_stopping.is_set() or time.monotonic() >= until
                    if is_over or not await self._send(webhook, delivery):
                        return

    async def _send(self, webhook: Webhook, delivery: Delivery) -> bool:
        """Send one delivery, record the result, and return whether it succeeded."""
        timestamp = int(now().timestamp())
        headers = {
            "webhook-id": delivery.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(webhook.secret, delivery.id, timestamp, delivery.body),
            "user-agent": "dlrm-service",
        }
        failure: UndeliveredError | None = None
        result = ""
        try:
            result = str(await post(webhook.url, headers, delivery.body, self._networks))
        except UndeliveredError as error:
            failure, result = error, str(error)[:MAX_RESULT]
            log.info("webhook_failed", webhook=webhook.id, delivery=delivery.id, result=result)
        self._record(webhook, delivery, result, failure)
        return failure is None

    def _record(self, webhook: Webhook, delivery: Delivery, result: str, failure: UndeliveredError | None) -> None:
        at = now()
        with self._database.write() as session:
            webhooks, deliveries = WebhookRepository(session), DeliveryRepository(session)
            webhooks.update(webhook.id, last_tried_at=at, last_result=result)
            if failure is not None and failure.status == GONE:
                webhooks.stop(webhook.id, f"the receiver answered {GONE}")
            if failure is None:
                deliveries.remove(delivery.id)
                return
            deliveries.remove_old(webhook.id, at - LIFETIME)
            wait = min(LAST_RETRY, FIRST_RETRY * 2**delivery.num_tries)
            # The others would most likely fail as well, and take as long.
            deliveries.postpone_due(webhook.id, at, at + wait)
            deliveries.postpone(delivery.id, delivery.num_tries + 1, at + wait)


@contextmanager
def _guard() -> Generator[None]:
    """Log an error: the next round tries again."""
    try:
        yield
    except Exception as error:
        # Catches everything: a webhook must not hold up the others.
        log.error("webhooks_failed", exc_info=error)
