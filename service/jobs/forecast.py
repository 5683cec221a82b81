"""Forecast of the log-loss at the end of a job that trains, from its evaluations so far."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from dlrm.record import LossForecast, forecast_log_loss
from service.reports.repository import ReportRepository
from service.store.models import Job
from service.store.states import JobState


def forecast_end(session: Session, job: Job, resolved: Mapping[str, Any]) -> LossForecast | None:
    """Forecast the log-loss at the end of a job; None unless it trains, at one batch size and to an end.

    resolved: resolved document, with what a run has decided once it has.
    """
    num_steps = job.progress.get("num_steps")
    if job.state != JobState.RUNNING or not num_steps:
        return None
    # Documents of earlier versions may lack sections.
    batch, optimizer = resolved["job"]["batch"], resolved["job"].get("dense_optimizer", {})
    is_followed = resolved["job"].get("data", {}).get("follow") is not None
    if is_followed or batch.get("schedule") or batch.get("growth"):
        return None
    schedule = optimizer.get("schedule", {})
    decay = schedule.get("decay", "polynomial")
    poor = [] if decay == "constant" else [f'decay "{decay}" lets the rate fall, which changes the curve']
    if schedule.get("autowu"):
        poor.append("autowu raises the rate for a part of the run")
    # Of one batch size, steps are in proportion to samples.
    return forecast_log_loss(ReportRepository(session).list_log_losses(job.id), num_steps, poor)
