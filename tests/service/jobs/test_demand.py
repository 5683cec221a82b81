from service.jobs.demand import find_first_lack, list_misfits
from service.launchers.protocol import Capacity
from service.reasons import Reason


def test_what_a_job_lacks_is_in_the_right_number() -> None:
    one, none = Capacity(num_cores=1, memory_bytes=0, num_gpus=1), Capacity(num_cores=0, memory_bytes=0, num_gpus=0)
    assert find_first_lack(one, none) == (Reason.WAITING_FOR_CPU, "needs 1 core, 0 free")
    gpu, core = Capacity(num_cores=1, memory_bytes=0, num_gpus=1), Capacity(num_cores=1, memory_bytes=0, num_gpus=0)
    assert find_first_lack(gpu, core) == (Reason.WAITING_FOR_GPU, "needs 1 GPU, 0 free")
    misfits = [str(misfit) for misfit in list_misfits(Capacity(2, 0, 2), Capacity(1, 0, 1))]
    assert misfits == [
        "resources.workers_per_node: workers_per_node x threads_per_worker asks for 2 cores, this machine has 1 "
        "(valid: at most 1 core)",
        "resources.gpus_per_worker: asks for 2 GPUs, this machine has 1 (valid: at most 1 GPU; 0 trains on the CPU)",
    ]
