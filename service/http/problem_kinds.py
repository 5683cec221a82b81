"""Kinds of problems that the API answers with, for its documentation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from dlrm.config import FieldError

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
MEDIA_TYPE = "application/problem+json"
EXAMPLE_REQUEST_ID = "req_01JAR8Z3M5T2Q7W9X4Y6V1N0KD"
_KINDS = "__problem_kinds__"
"""Attribute of an endpoint with the kinds of problems of its own."""


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem, known by its slug, with the detail of an example."""

    slug: str
    status: int
    title: str
    detail: str = ""
    fault: FieldError | None = None
    """Field at fault in the example, from which its detail is made then; None if absent."""

    @property
    def uri(self) -> str:
        return f"urn:dlrm:problem:{self.slug}"

    def make_example(self) -> dict[str, Any]:
        """Make a problem document of this kind."""
        return {
            "type": self.uri,
            "title": self.title,
            "status": self.status,
            "detail": self.detail or str(self.fault),
            "errors": [self.fault.as_dict()] if self.fault else [],
            "request_id": EXAMPLE_REQUEST_ID,
        }


KINDS = {
    kind.slug: kind
    for kind in (
        ProblemKind(
            "malformed-request",
            400,
            "The request cannot be understood",
            "the header authorization is given 2 times (valid: once)",
        ),
        ProblemKind(
            "malformed-json",
            400,
            "The body cannot be read as JSON",
            "the body cannot be read as JSON: 'priority' occurs twice in one object",
        ),
        ProblemKind(
            "malformed-toml",
            400,
            "The document cannot be read as TOML",
            "the document is not TOML: Expected '=' after a key in a key/value pair (at line 3, column 8)",
        ),
        ProblemKind("unauthenticated", 401, "Authentication required", "unknown API key"),
        ProblemKind(
            "forbidden", 403, "Not allowed", "this requires the role submitter; dashboards has the role viewer"
        ),
        ProblemKind("not-found", 404, "Not found", "there is no job job_01JAR8Z3M5T2Q7W9X4Y6V1N0KD"),
        ProblemKind("method-not-allowed", 405, "Method Not Allowed", "Method Not Allowed; allowed here: GET, HEAD"),
        ProblemKind(
            "slow-body",
            408,
            "The body comes too slowly",
            "only 2 bytes of the body came (valid: 65,536 bytes a second, after the first 10 seconds)",
        ),
        ProblemKind(
            "conflict",
            409,
            "Conflict with the current state",
            "job_01JAR8Z3M5T2Q7W9X4Y6V1N0KD has already ended: SUCCEEDED",
        ),
        ProblemKind(
            "files-elsewhere",
            409,
            "The service does not see these files",
            "model of job_01JAR8Z3M5T2Q7W9X4Y6V1N0KD is where the service does not see it: s3://ads/runs/ads/model",
        ),
        ProblemKind("attempt-ended", 410, "The attempt has ended", "attempt 1 has ended: its reports are closed"),
        ProblemKind("too-large", 413, "The body is too large", "the body exceeds the limit of 1,048,576 bytes"),
        ProblemKind(
            "unsupported-media-type",
            415,
            "The body has another type than it should",
            "the content type is text/plain (valid: application/json)",
        ),
        ProblemKind(
            "range-not-satisfiable",
            416,
            "There are no such bytes",
            "there are 1,024 bytes, and bytes=2048- asks for none of them (valid: bytes=0-)",
        ),
        ProblemKind(
            "invalid-request",
            422,
            "The request is not valid",
            fault=FieldError("limt", "is not a parameter of this path; did you mean limit?", "cursor, limit, name"),
        ),
        ProblemKind(
            "invalid-job",
            422,
            "The job document is not valid",
            fault=FieldError("batch.global_size", "16383 is not divisible by 2 ranks", "16382 or 16384"),
        ),
        ProblemKind(
            "cannot-fit",
            422,
            "The job can never run on this machine",
            fault=FieldError("resources.memory", "asks for 5.00 GiB, this machine has 4.00 GiB", 'at most "4.00GiB"'),
        ),
        ProblemKind(
            "idempotency-mismatch",
            422,
            "The idempotency key belongs to another request",
            "Idempotency-Key 'nightly' created job_01JAR8Z3M5T2Q7W9X4Y6V1N0KD by another request; send that request "
            "again, or use another key",
        ),
        ProblemKind("cannot-plan", 422, "The job cannot be planned", "the plan needs more than 1.0 GiB of memory"),
        ProblemKind("too-many-requests", 429, "Too many requests", "too many requests of this key; try again in 3 s"),
        ProblemKind(
            "quota-exceeded",
            429,
            "Too many jobs wait",
            "ads may have 20 waiting jobs, and no more; submit again once one has started",
        ),
        ProblemKind(
            "internal-error",
            500,
            "The service failed",
            f"the service failed while handling this request; its log has the cause, under {EXAMPLE_REQUEST_ID}",
        ),
        ProblemKind(
            "planning-failed",
            500,
            "The planning program failed",
            "exit code 1; this is not the job's fault, and the service's log has the output",
        ),
        ProblemKind(
            "too-busy",
            503,
            "Too many requests at once",
            "other requests have taken all slots for requests; try again soon",
        ),
        ProblemKind(
            "database-unavailable",
            503,
            "The service's database is not available",
            "the database does not answer; running jobs continue, and the request may be sent again",
        ),
        ProblemKind("not-ready", 503, "The service is not ready", "the control loop is not running"),
        ProblemKind("planning-busy", 503, "Too many plans at once", "2 plans are being made, and 4 more requests wait"),
        ProblemKind(
            "plan-timeout",
            503,
            "The plan took too long",
            "the plan was not finished within 30 s; `dlrm plan` on the document has no time limit",
        ),
        ProblemKind(
            "storage-full",
            507,
            "The service's storage is full",
            "the disk of /var/lib/dlrm, where the service keeps its data, is full; free space, then try again",
        ),
    )
}
"""All kinds, by their slugs."""


def may_answer(*slugs: str) -> Callable[[Endpoint], Endpoint]:
    """Document an endpoint's own kinds of problems, beside the kinds that every endpoint may answer with."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _KINDS, slugs)
        return endpoint

    return mark


def get_own_kinds(endpoint: Callable[..., Any]) -> tuple[str, ...]:
    """Return the slugs of an endpoint's own kinds of problems."""
    return getattr(endpoint, _KINDS, ())


def document_problems(slugs: Iterable[str]) -> dict[int | str, dict[str, Any]]:
    """Make the documentation of answers with these kinds of problems, by status."""
    by_status: dict[int, list[ProblemKind]] = {}
    for kind in sorted((KINDS[slug] for slug in set(slugs)), key=lambda kind: (kind.status, kind.slug)):
        by_status.setdefault(kind.status, []).append(kind)
    return {status: _document_status(kinds) for status, kinds in by_status.items()}


def make_examples() -> dict[str, Any]:
    """Make the examples of all kinds, to which the documentation of operations refers."""
    return {slug: {"summary": kind.title, "value": kind.make_example()} for slug, kind in KINDS.items()}


def _document_status(kinds: list[ProblemKind]) -> dict[str, Any]:
    schema = {
        "allOf": [
            {"$ref": "#/components/schemas/ProblemDocument"},
            {"properties": {"type": {"enum": [kind.uri for kind in kinds]}, "status": {"const": kinds[0].status}}},
        ]
    }
    examples = {kind.slug: {"$ref": f"#/components/examples/{kind.slug}"} for kind in kinds}
    description = "; ".join(f"`{kind.slug}`: {kind.title}" for kind in kinds)
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}}}
