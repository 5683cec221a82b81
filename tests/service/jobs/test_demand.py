from dlrm.config import JobSpec
from service.jobs.document import choose_machines
from service.launchers.protocol import Capacity, Demand, LauncherCapacity
from service.reasons import Reason
from service.store.demand import compute_demand, find_first_lack, find_misfit, list_faults, list_misfits
from tests.service.api import make_document


def make_capacity(num_cores: int, memory_bytes: int, num_gpus: int, num_nodes: int = 1) -> LauncherCapacity:
    node = Capacity(num_cores, memory_bytes, num_gpus)
    return LauncherCapacity(node.times(num_nodes), node)


def make_spec(**resources: object) -> JobSpec:
    return JobSpec.model_validate(make_document("succeed", resources=resources))


def test_a_job_fits_machines_of_which_each_and_all_have_what_it_needs() -> None:
    demand = Demand(Capacity(4, 2**33, 0), num_nodes=4, min_nodes=2)
    assert list_misfits(demand, make_capacity(4, 2**33, 0, num_nodes=2)) == []
    (lack, _) = list_misfits(demand, make_capacity(4, 2**33, 0, num_nodes=1))
    assert (lack.field, "asks for 8 cores, all machines together have 4" in lack.message) == ("resources.nodes", True)
    (lack,) = list_misfits(demand, make_capacity(3, 2**33, 0, num_nodes=8))
    assert (lack.field, "a machine has 3" in lack.message) == ("resources.workers_per_node", True)


def test_the_demand_of_a_range_of_machines_has_both_its_ends() -> None:
    demand = compute_demand(make_spec(nodes={"min": 2, "max": 4}, workers_per_node=2, memory="1GiB"))
    assert demand == Demand(Capacity(2, 2**30, 0), num_nodes=4, min_nodes=2)
    assert (demand.total.num_cores, demand.least.num_cores) == (8, 4)


def test_of_a_range_of_machines_the_local_launcher_takes_one() -> None:
    spec = make_spec(nodes={"min": 1, "max": 4}, workers_per_node=2, memory="1GiB")
    assert compute_demand(choose_machines(spec, "local")) == Demand(Capacity(2, 2**30, 0))
    assert choose_machines(spec, "kubernetes") == spec


def test_the_local_launcher_starts_jobs_on_one_machine() -> None:
    large = make_capacity(64, 2**40, 0, num_nodes=8)
    assert list_faults(make_spec(), "local", large) == []
    assert list_faults(make_spec(nodes=4), "kubernetes", large) == []
    assert list_faults(make_spec(nodes=4), "kubernetes", None) == []
    (fault,) = list_faults(make_spec(nodes=4), "local", large)
    assert (fault.field, "4 machines" in fault.message) == ("resources.nodes", True)


def test_what_a_job_lacks_is_in_the_right_number() -> None:
    one, none = Capacity(num_cores=1, memory_bytes=0, num_gpus=1), Capacity(num_cores=0, memory_bytes=0, num_gpus=0)
    assert find_first_lack(one, none) == (Reason.WAITING_FOR_CPU, "needs 1 core, 0 free")
    gpu, core = Capacity(num_cores=1, memory_bytes=0, num_gpus=1), Capacity(num_cores=1, memory_bytes=0, num_gpus=0)
    assert find_first_lack(gpu, core) == (Reason.WAITING_FOR_GPU, "needs 1 GPU, 0 free")
    misfits = [str(misfit) for misfit in list_misfits(Demand(Capacity(2, 0, 2)), make_capacity(1, 0, 1))]
    assert misfits == [
        "resources.workers_per_node: workers_per_node x threads_per_worker asks for 2 cores, this machine has 1 "
        "(valid: at most 1 core)",
        "resources.gpus_per_worker: asks for 2 GPUs, this machine has 1 (valid: at most 1 GPU; 0 trains on the CPU)",
    ]


def test_a_job_fits_no_node_where_none_has_all_that_it_asks_for_together() -> None:
    kinds = (Capacity(8, 2**36, 8), Capacity(64, 2**36, 0))
    capacity = LauncherCapacity(Capacity(72, 2**37, 8), Capacity(64, 2**36, 8), is_fixed=False, machines=kinds)
    assert find_misfit(Demand(Capacity(8, 2**35, 1)), capacity) is None
    assert find_misfit(Demand(Capacity(64, 2**35, 0)), capacity) is None
    assert find_misfit(Demand(Capacity(16, 2**35, 1)), capacity) == (
        "no machine has the cores, memory and GPUs together that it asks for"
    )
    assert "asks for 65 cores, the largest machine has 64" in (find_misfit(Demand(Capacity(65, 0, 0)), capacity) or "")
    assert "80 cores, all machines have 72" in (find_misfit(Demand(Capacity(40, 0, 0), 2, 2), capacity) or "")


def test_machines_that_are_not_seen_are_no_misfit() -> None:
    nothing = LauncherCapacity(Capacity(0, 0, 0), Capacity(0, 0, 0), is_fixed=False)
    assert find_misfit(Demand(Capacity(2, 0, 0)), nothing) is None
    assert find_misfit(Demand(Capacity(2, 0, 0)), None) is None
