"""Advice on jobs, from what the database knows of them and, for measured runs on several ranks, what other plans would
take."""

from dataclasses import replace
from typing import Annotated

from service.access.principal import Principal
from service.access.visibility import get_visible_job
from service.advice.advisor import advise
from service.advice.reading import read_facts
from service.advice.what_if import MeasuredJob, WhatIf
from service.capacity.known import KnownCapacity
from service.database import Database
from service.parts import depend_on
from service.plans.service import PlanService
from service.schemas import JobAdvice
from service.store.job_repository import JobRepository


class AdviceService:
    def __init__(self, database: Database, capacity: KnownCapacity, plans: PlanService) -> None:
        self._database = database
        self._capacity = capacity
        self._what_if = WhatIf(plans)

    def advise(self, job_id: str, principal: Principal) -> JobAdvice:
        """Advise on what to change in a job. Raises ProblemError if the sender may know of no such job."""
        with self._database.read() as session:
            job = get_visible_job(session, job_id, principal)
            facts = read_facts(session, job, self._capacity)
            resolved = JobRepository(session).get_document(job_id).resolved
            measured = MeasuredJob(job_id, job.num_attempts, job.launcher, resolved)
        compared, is_comparing = self._what_if.compare(measured, facts)
        advice = advise(replace(facts, comparison=compared))
        return advice.model_copy(update={"is_comparing": True, "note": None}) if is_comparing else advice


Advisor = Annotated[AdviceService, depend_on(AdviceService)]
"""Parameter type of an endpoint that needs the service."""
