"""Endpoints under /v1/webhooks."""

from fastapi import APIRouter

from service.access.senders import Submitter, Viewer
from service.http.problem_kinds import may_answer
from service.http.route import ApiRoute
from service.schemas import Page, Webhook
from service.webhooks.schemas import NewWebhook
from service.webhooks.service import Webhooks

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=ApiRoute)


@router.get("")
def list_webhooks(webhooks: Webhooks, principal: Viewer) -> Page[Webhook]:
    """List the webhooks without their secrets: an admin sees all, others see the webhooks of their owner."""
    return Page(items=webhooks.list_visible(principal))


@router.post("", status_code=201)
@may_answer("conflict")
def create_webhook(new_webhook: NewWebhook, webhooks: Webhooks, principal: Submitter) -> Webhook:
    """Make a webhook: from now on its URL gets a signed request for each chosen change of a job's state.

    Requests follow the specification Standard Webhooks. They are retried for a day until the answer is 2xx.
    """
    return webhooks.create(new_webhook, principal)


@router.delete("/{webhook_id}", status_code=204)
def remove_webhook(webhook_id: str, webhooks: Webhooks, principal: Submitter) -> None:
    """Remove a webhook, with what is still to be sent to it."""
    webhooks.remove(webhook_id, principal)


@router.post("/{webhook_id}/test", status_code=202)
@may_answer("conflict")
def try_webhook(webhook_id: str, webhooks: Webhooks, principal: Submitter) -> Webhook:
    """Send a request of the type `webhook.test` soon; the list of webhooks then has its result."""
    return webhooks.try_out(webhook_id, principal)
