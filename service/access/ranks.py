"""Check of the number of a rank in a request."""

from dlrm.config import FieldError
from service.http.problems import invalid_request


def check_rank(world_size: int, rank: int) -> None:
    """Raise ProblemError if a job of `world_size` ranks has no such rank."""
    if rank >= world_size:
        raise invalid_request([FieldError("rank", f"there is no rank {rank}", f"0 to {world_size - 1}")])
