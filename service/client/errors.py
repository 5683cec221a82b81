"""What can go wrong between the client and the service."""

from pydantic import BaseModel, ConfigDict

from dlrm.config import FieldError


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str = "about:blank"
    title: str = ""
    status: int
    detail: str | None = None
    errors: list[FieldError] = []

    @property
    def slug(self) -> str:
        """The last word of the type, such as `invalid-job`."""
        return self.type.rsplit(":", 1)[-1]

    def lines(self) -> list[str]:
        """One line a fault, for people."""
        return [str(error) for error in self.errors] or [self.detail or self.title or f"HTTP status {self.status}"]


class ServiceError(Exception):
    """The service has refused a request; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__("; ".join(problem.lines()))


class ServiceUnreachableError(Exception):
    """Nothing at the service's address has answered."""

    def __init__(self, url: str, cause: Exception) -> None:
        super().__init__(f"no answer from the service at {url} ({cause}); is `dlrm serve` running there?")
