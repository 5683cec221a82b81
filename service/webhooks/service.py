"""Creation, list, test and removal of webhooks."""

import base64
import secrets
from collections.abc import Sequence
from typing import Annotated

from sqlalchemy.orm import Session

from dlrm.config import FieldError, format_count
from service import schemas
from service.access.principal import Principal
from service.access.visibility import refuse_browser
from service.audit.log import AuditLog
from service.audit.models import AuditAction
from service.database import Database
from service.http.problems import conflict, forbidden, invalid_request, not_found
from service.http.request_origin import Network
from service.ids import new_id
from service.parts import depend_on
from service.store.job_repository import JobRepository
from service.times import now
from service.webhooks.messages import make_test
from service.webhooks.models import Webhook
from service.webhooks.post import SECRET_PREFIX, find_forbidden_address
from service.webhooks.repository import DeliveryRepository, WebhookRepository
from service.webhooks.schemas import NewWebhook

MAX_WEBHOOKS = 20
"""Largest number of webhooks for the jobs of one owner."""


class WebhookService:
    def __init__(self, database: Database, audit: AuditLog, networks: Sequence[Network]) -> None:
        """Keep webhooks in the database. networks: private networks that requests may go to."""
        self._database = database
        self._audit = audit
        self._networks = networks

    def list_visible(self, principal: Principal) -> list[schemas.Webhook]:
        """List the webhooks for jobs that the sender may see."""
        with self._database.read() as session:
            return [
                _view(session, webhook) for webhook in WebhookRepository(session).list_visible(principal.visible_owner)
            ]

    def create(self, new: NewWebhook, principal: Principal) -> schemas.Webhook:
        """Make a webhook.

        Raises ProblemError if the sender may not see these jobs or has shown no key, the URL has an address that
        requests may not go to, or there are too many.
        """
        refuse_browser(principal, "make webhooks")
        if (fault := find_forbidden_address(new.url, self._networks)) is not None:
            raise invalid_request([FieldError("url", fault, "a public host, or a network in DLRM_WEBHOOK_NETWORKS")])
        owner = new.owner or principal.owner
        if not principal.may_see(owner):
            raise forbidden(f"owner: {principal.owner} may not see the jobs of {owner} (valid: {principal.owner})")
        secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
        with self._database.write() as session:
            webhooks = WebhookRepository(session)
            if webhooks.count(owner) >= MAX_WEBHOOKS:
                raise conflict(f"{owner} has {format_count(MAX_WEBHOOKS, 'webhook')}, and no more; remove one first")
            webhook = Webhook(
                id=new_id("whk"),
                owner=owner,
                key_id=principal.key_id,
                url=new.url,
                secret=secret,
                states=[state.value for state in new.states],
                labels=dict(new.labels),
                created_at=now(),
                last_event_id=JobRepository(session).find_newest_event(),
            )
            webhooks.add(webhook)
            self._audit.record(
                session, principal.actor, AuditAction.WEBHOOK_CREATED, webhook.id, owner=owner, url=new.url
            )
            return _view(session, webhook).model_copy(update={"secret": secret})

    def remove(self, webhook_id: str, principal: Principal) -> None:
        """Remove a webhook. Raises ProblemError if the sender may know of none with this id."""
        with self._database.write() as session:
            webhook = _get_visible(session, webhook_id, principal)
            WebhookRepository(session).remove(webhook_id)
            self._audit.record(
                session, principal.actor, AuditAction.WEBHOOK_REMOVED, webhook_id, owner=webhook.owner, url=webhook.url
            )

    def try_out(self, webhook_id: str, principal: Principal) -> schemas.Webhook:
        """Have a test sent to a webhook.

        Raises ProblemError if the sender may know of none with this id, or it is stopped.
        """
        with self._database.write() as session:
            webhook = _get_visible(session, webhook_id, principal)
            if webhook.stopped_because is not None:
                raise conflict(f"{webhook_id} is stopped: {webhook.stopped_because}; make another one")
            DeliveryRepository(session).add([make_test(webhook)])
            return _view(session, webhook)


Webhooks = Annotated[WebhookService, depend_on(WebhookService)]
"""Parameter type of an endpoint that needs the service."""


def _get_visible(session: Session, webhook_id: str, principal: Principal) -> Webhook:
    webhook = WebhookRepository(session).get(webhook_id)
    if webhook is None or not principal.may_see(webhook.owner):
        raise not_found("webhook", webhook_id)
    return webhook


def _view(session: Session, webhook: Webhook) -> schemas.Webhook:
    view = schemas.Webhook.model_validate(webhook)
    return view.model_copy(update={"num_waiting": DeliveryRepository(session).count(webhook.id), "secret": None})
