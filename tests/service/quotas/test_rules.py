import pytest

from dlrm.config import FieldError
from service.launchers.protocol import Capacity
from service.store.models import Quota
from service.store.quotas import Usage, find_quota_lack, list_excesses

GIB = 2**30
DEMAND = Capacity(num_cores=1, memory_bytes=2 * GIB, num_gpus=1)
USAGE = Usage(Capacity(num_cores=3, memory_bytes=3 * GIB, num_gpus=1), 1)


@pytest.mark.parametrize(
    ("quota", "lack"),
    [
        (Quota(num_running=1), "ann may run 1 job at once, and runs 1"),
        (Quota(num_cores=3), "needs 1 core, and ann occupies 3 of 3"),
        (Quota(memory_bytes=4 * GIB), "needs 2.00 GiB, and ann occupies 3.00 GiB of 4.00 GiB"),
        (Quota(num_gpus=1), "needs 1 GPU, and ann occupies 1 of 1"),
        (Quota(num_cores=4), None),
    ],
)
def test_what_a_job_lacks_of_a_quota_is_a_sentence_in_the_right_number(quota: Quota, lack: str | None) -> None:
    assert find_quota_lack("ann", DEMAND, quota, USAGE) == lack


def test_what_a_quota_never_allows_is_in_the_right_number() -> None:
    demand = Capacity(num_cores=2, memory_bytes=GIB, num_gpus=1)
    assert list_excesses(demand, Quota(num_cores=1, num_gpus=0)) == [
        FieldError("resources", "asks for 2 cores", "at most 1 core"),
        FieldError("resources", "asks for 1 GPU", "at most 0 GPUs"),
    ]
