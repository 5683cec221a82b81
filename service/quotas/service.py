"""Operations on quotas, and the check of a submission against its owner's quota."""

from typing import Annotated

from sqlalchemy.orm import Session

from dlrm.config import format_count
from service.access.principal import Principal
from service.audit.log import AuditLog
from service.audit.models import AuditAction
from service.database import Database
from service.http.problems import ProblemError, not_found
from service.launchers.protocol import Capacity
from service.parts import depend_on
from service.quotas.schemas import NewQuota, QuotaView
from service.store.models import Quota
from service.store.quotas import EVERYBODY, QuotaRepository, find_quota, list_excesses


class QuotaService:
    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database = database
        self._audit = audit

    def list_visible(self, principal: Principal) -> list[QuotaView]:
        """List the quotas for jobs that the sender may see."""
        with self._database.read() as session:
            quotas = QuotaRepository(session).list_all()
        return [
            QuotaView.model_validate(quota)
            for quota in quotas
            if quota.owner == EVERYBODY or principal.may_see(quota.owner)
        ]

    def put(self, owner: str, quota: NewQuota, principal: Principal) -> QuotaView:
        """Set the quota of an owner. Running jobs go on; waiting ones wait until they fit."""
        with self._database.write() as session:
            QuotaRepository(session).put(Quota(owner=owner, **quota.model_dump()))
            self._audit.record(session, principal.actor, AuditAction.QUOTA_CHANGED, owner, **quota.model_dump())
        return QuotaView(owner=owner, **quota.model_dump())

    def remove(self, owner: str, principal: Principal) -> None:
        """Remove the quota of an owner. Raises ProblemError if there is none."""
        with self._database.write() as session:
            if not QuotaRepository(session).remove(owner):
                raise not_found("quota", owner)
            self._audit.record(session, principal.actor, AuditAction.QUOTA_CHANGED, owner, removed=True)


Quotas = Annotated[QuotaService, depend_on(QuotaService)]
"""Parameter type of an endpoint that needs the service."""


def check_submission(session: Session, owner: str, demand: Capacity) -> None:
    """Raise ProblemError if the quota of `owner` never lets such a job start, or lets no further one wait."""
    quotas = QuotaRepository(session)
    quota = find_quota(quotas.list_by_owner(), owner)
    if errors := list_excesses(demand, quota):
        detail = "; ".join(str(error) for error in errors)
        title = "The job can never run within its owner's quota"
        raise ProblemError("cannot-fit", detail, title=title, errors=errors)
    if quota is None or quota.num_queued is None:
        return
    quotas.lock(quota)
    if quotas.count_queued(owner) >= quota.num_queued:
        jobs = format_count(quota.num_queued, "waiting job")
        detail = f"{owner} may have {jobs}, and no more; submit again once one has started"
        raise ProblemError("quota-exceeded", detail, headers={"Retry-After": "30"})
