"""Groups of jobs that differ in their seeds alone, and so count as one method."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dlrm.config import flatten
from service.compare.figures import get_figure
from service.store.models import Job, JobDocument
from service.store.states import JobState

SEED = "run.seed"
SEED_LABEL = "seed"
"""Label whose value may differ between jobs of one group, as `run.seed` may."""
TRIAL_LABEL = "sweep-trial"
"""Label with the key of a sweep's trial, which its seed changes."""
Seed = tuple[int, str | None]
"""Seed of a job and its label `seed`; absent labels are None."""
_NO_SETTINGS = ("name", "labels", "priority", "filled_by_preset")
"""Fields of a document that do not change what is learned, or how fast."""


@dataclass(frozen=True)
class Candidate:
    """A job to compare, with its document and labels."""

    job: Job
    document: JobDocument
    labels: dict[str, str]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings that count in a comparison, by dotted path."""
        return flatten_settings(self.document.spec)

    @property
    def seed(self) -> int:
        return self.settings[SEED]


@dataclass
class Group:
    """Jobs with the same settings and different seeds."""

    settings: dict[str, Any]
    members: list[Candidate] = field(default_factory=list[Candidate])

    def list_figures(self, name: str) -> list[tuple[Candidate, float]]:
        """List the jobs that have succeeded and have a figure, each with its value."""
        return [
            (member, value)
            for member in self.members
            if member.job.state == JobState.SUCCEEDED
            and (value := get_figure(name, member.document.metrics, member.job.started_at, member.job.finished_at))
            is not None
        ]

    def get_error(self, name: str) -> float | None:
        """Return the standard error, over evaluation rows, of a figure of its first such job; None if not known."""
        found = self.list_figures(name)
        return found[0][0].document.metrics.get(f"{name}_standard_error") if found else None

    def compute_mean(self, name: str) -> float | None:
        """Compute the mean of a figure over the jobs that have succeeded; None if none of them has it."""
        values = [value for _, value in self.list_figures(name)]
        return statistics.fmean(values) if values else None


def flatten_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a document that count in a comparison, by dotted path."""
    return dict(flatten({name: value for name, value in document.items() if name not in _NO_SETTINGS}))


def fold_sections(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Name a section that is off in some documents by itself, "on" or "off", in the place of its fields.

    A field stays if the documents that have it differ in it.
    """
    folded = [dict(document) for document in documents]
    for section in {name for document in documents for name, value in document.items() if value is None}:
        fields = {name for document in documents for name in document if name.startswith(f"{section}.")}
        for document in folded if fields else ():
            document[section] = "off" if fields.isdisjoint(document) else "on"
        for name in fields:
            values = [document[name] for document in documents if name in document]
            if any(value != values[0] for value in values):
                continue
            for document in folded:
                document.pop(name, None)
    return folded


def make_key(settings: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return a text that two jobs have in common if they differ in their seeds alone."""
    parts = ({**settings, SEED: None}, {**labels, SEED_LABEL: "", TRIAL_LABEL: ""})
    return repr([sorted(part.items()) for part in parts])


def get_seed(settings: Mapping[str, Any], labels: Mapping[str, str]) -> Seed:
    """Return the seed of a job and its label `seed`: no two jobs of a group have both in common."""
    return settings[SEED], labels.get(SEED_LABEL)


def number_groups(keys: Sequence[str], seeds: Sequence[Seed]) -> list[int]:
    """Number the groups of jobs with these keys and seeds, and return the number of each job.

    Jobs of a group have one key; a seed that the group has already begins another one, since the same seed again says
    nothing of the chance of seeds.
    """
    times: Counter[tuple[str, Seed]] = Counter()
    numbers: dict[tuple[str, int], int] = {}
    found: list[int] = []
    for key, seed in zip(keys, seeds, strict=True):
        found.append(numbers.setdefault((key, times[key, seed]), len(numbers)))
        times[key, seed] += 1
    return found


def group_by_settings(candidates: Sequence[Candidate]) -> list[Group]:
    """Group jobs whose settings and labels are the same but for their seeds; each seed is in a group once."""
    keys = [make_key(found.settings, found.labels) for found in candidates]
    numbers = number_groups(keys, [get_seed(found.settings, found.labels) for found in candidates])
    groups: dict[int, Group] = {}
    for number, found in zip(numbers, candidates, strict=True):
        settings = {name: value for name, value in found.settings.items() if name != SEED}
        groups.setdefault(number, Group(settings)).members.append(found)
    return list(groups.values())
