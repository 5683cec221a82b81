"""Filters of the list of jobs, as parameters of a query."""

from typing import Annotated

from fastapi import Depends, Query

from service.http.query import FilterTime, LabelFilter, parse_label
from service.store.job_lists import JobFilter
from service.store.states import JobState


def _choose_jobs(
    state: Annotated[list[JobState] | None, Query(description="may be repeated; one must match")] = None,
    label: LabelFilter = None,
    name: Annotated[str | None, Query(max_length=63)] = None,
    owner: Annotated[str | None, Query(max_length=63)] = None,
    created_after: Annotated[FilterTime | None, Query(description="submitted then or later")] = None,
    created_before: Annotated[FilterTime | None, Query(description="submitted earlier")] = None,
    finished_after: Annotated[FilterTime | None, Query(description="ended then or later")] = None,
    finished_before: Annotated[FilterTime | None, Query(description="ended earlier")] = None,
    q: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=100,
            description="part of the name, the owner, the id or the value of a label; the beginning of one if it has "
            "fewer than three characters",
        ),
    ] = None,
) -> JobFilter:
    return JobFilter(
        states=tuple(dict.fromkeys(state or ())),
        labels=tuple(parse_label(text) for text in label or ()),
        name=name,
        owner=owner,
        created_after=created_after,
        created_before=created_before,
        finished_after=finished_after,
        finished_before=finished_before,
        text=q,
    )


ChosenJobs = Annotated[JobFilter, Depends(_choose_jobs)]
"""Parameter type of an endpoint with these filters."""
