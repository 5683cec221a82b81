"""Explains why the tables of a job do not fit, and which settings of its document would make them fit.

A setting is written as TOML has it, `resources.memory = "3.11GiB"`; words in parentheses explain it.
"""

from collections.abc import Iterator
from functools import partial

from dlrm.planning.byte_sizes import (
    format_for_document,
    format_for_sentence,
    format_parts,
    round_down_as_written,
    round_up_as_written,
)
from sharding.planner import Diagnosis, NoPlanError, Plan, PlanError, PlanRequest, make_plan
from sharding.planner.cache_size import count_device_bytes
from sharding.planner.diagnosis import BlamedRule, MemoryUse


def make_plan_or_refuse(request: PlanRequest) -> Plan:
    """Make the plan that answers the request of a job.

    Raises PlanError. If the tables do not fit, its message is for users, and `valid` contains settings of the job's
    document, each tried exactly as it is written.
    """
    try:
        return make_plan(request, round_memory=partial(round_up_as_written, device=request.topology.device))
    except NoPlanError as error:
        diagnosis = error.diagnosis
        valid = [", ".join(_list_settings(request, other, diagnosis.cache_share)) for other in diagnosis.alternatives]
        raise PlanError(_compose_message(diagnosis), valid, error.field, error.table, error.short_bytes) from None


def _compose_message(diagnosis: Diagnosis) -> str:
    request, needed_bytes, use = diagnosis.request, diagnosis.least_memory_bytes, diagnosis.memory_use
    if diagnosis.blamed_rule is not None:
        cause = _describe_rule(request, diagnosis.blamed_rule)
    elif diagnosis.is_option_at_fault:
        cause = _describe_table(diagnosis)
    else:
        cause = f"the {len(request.tables)} tables do not fit together"
    if needed_bytes is not None and use is not None:
        cause = f"{cause}: {_describe_memory(request, use, needed_bytes, diagnosis.cache_share)}"
    return cause if diagnosis.least_host_bytes is None else f"{cause}. {_describe_host(request, diagnosis)}"


def _describe_host(request: PlanRequest, diagnosis: Diagnosis) -> str:
    """Describe how much host memory is missing for tables that GPUs would cache."""
    assert diagnosis.least_host_bytes is not None, "it is the cause"
    needed, available = (
        format_for_sentence(num_bytes, "cuda")
        for num_bytes in (diagnosis.least_host_bytes, request.topology.host_memory_bytes)
    )
    return (
        f"GPUs could cache a part of tables that stay in the memory of their machine, which needs {needed} for that "
        f"and has {available} (resources.memory)"
    )


def _describe_rule(request: PlanRequest, blamed: BlamedRule) -> str:
    kind = blamed.sharding_type
    setting = f"plan {kind}" if blamed.rule is None else f"rule {request.rules[blamed.rule].pattern!r}, {kind},"
    shards = f"in up to {blamed.max_shards} parts each"
    if kind == "data_parallel":
        shards = f"with copies on {blamed.max_shards} ranks"
    amount = format_for_sentence(blamed.buffer_bytes, request.topology.device)
    return f"the {setting} needs {amount} for buffers of its tables ({len(blamed.tables)}, {shards})"


def _describe_table(diagnosis: Diagnosis) -> str:
    """Describe a table that does not fit: its size as a whole, and in the smallest shards that it may have."""
    request, option = diagnosis.request, diagnosis.option
    device, table = request.topology.device, option.table
    size = format_for_sentence(table.count_bytes(request.optimizer), device)
    if table.is_cached:
        of_cache = count_device_bytes(request.optimizer, table.cache_share, table.num_rows, table.embedding_dim, "fp32")
        size += f", {format_for_sentence(of_cache, device)} with {100 * table.cache_share:g} % of it cached"
    if option.is_replicated:
        size += ", with a copy on every rank"
    elif len(option.blocks) == 1:
        size += ", whole on one rank"
    else:
        on_rank = count_device_bytes(
            request.optimizer, table.cache_share, option.blocks[0].num_rows, option.blocks[0].num_columns, table.dtype
        )
        is_splittable = "it may be split: " if option.is_automatic else ""
        parts = f"{format_for_sentence(on_rank, device)} per rank in {len(option.blocks)} parts"
        size = f"{is_splittable}{size} as a whole, {parts}"
    return f"table {table.name} ({size}) does not fit"


def _describe_memory(request: PlanRequest, use: MemoryUse, memory_bytes: int, cache_share: float) -> str:
    """Describe how much memory is missing, and what the fullest memory is used for.

    memory_bytes: the smallest memory that would be enough. use: what it would be used for. cache_share: cached share of
    each table.
    """
    device = request.topology.device
    available = round_down_as_written(request.topology.memory_bytes, device)
    needed, short = format_for_sentence(memory_bytes, device), format_for_sentence(memory_bytes - available, device)
    owner = "rank" if device == "cuda" else "node"
    split_use = {
        "memory": "gradients of pooled embeddings",
        "network": "slices of the exchange",
        "torchrec": "pooled embeddings and their gradients",
    }[request.transport]
    cached = f"{100 * cache_share:g} % of the weights, the others in the memory of the host,"
    parts = [
        (f"{'weights' if cache_share == 1 else cached} and optimizer state", use.weights_and_state),
        ("buffers of tables", sum(use.shard_buffers)),
        (split_use, sum(use.split_tables)),
        *use.others.items(),
        ("left free", memory_bytes - use.num_bytes),
    ]
    return (
        f"the fullest {owner} needs {needed} and has {format_for_sentence(available, device)}, {short} short. "
        f"The {needed} are {format_parts(parts, device)}"
    )


def _list_settings(request: PlanRequest, other: PlanRequest, cache_share: float) -> Iterator[str]:
    """Yield the settings of a job's document that make `other` of `request`. cache_share: as in a `Diagnosis`."""
    topology, changed = request.topology, other.topology
    if changed.memory_bytes != topology.memory_bytes:
        is_cuda = topology.device == "cuda"
        field, words = "resources.memory", "memory of a node"
        if is_cuda:
            field, words = "sharding.topology.gpu_memory", "GPUs with that much memory each"
        words += ", for a part of the tables: slower" if cache_share < 1 else ""
        yield f'{field} = "{format_for_document(changed.memory_bytes, topology.device)}" ({words})'
    if changed.host_memory_bytes != topology.host_memory_bytes:
        size = format_for_document(changed.host_memory_bytes, topology.device)
        yield f'resources.memory = "{size}" (memory of a node, for tables of which GPUs cache a part: slower)'
    if other.min_cache_share != request.min_cache_share:
        yield f"sharding.min_cache_share = {other.min_cache_share} (share of a table that GPUs cache: slower)"
    if other.resident_bytes is not None and other.resident_bytes != request.resident_bytes:
        size = format_for_document(other.resident_bytes, topology.device)
        of_tables = sum(table.count_bytes(request.optimizer) for table in request.tables)
        on_disk = format_for_sentence(of_tables, "cuda")
        yield f'sharding.resident_memory = "{size}" (tables in files: {on_disk} of disk, slower, the same result)'
    if changed.num_nodes != topology.num_nodes:
        yield f"resources.nodes = {changed.num_nodes} ({changed.world_size} ranks)"
    if [table.dtype for table in other.tables] != [table.dtype for table in request.tables]:
        yield 'sharding.table_dtype = "int8" (rows of 8 bits a number, rounded at random)'
    if other.optimizer != request.optimizer:
        yield f'table_optimizer.name = "{other.optimizer}" (which keeps less state)'
    if other.plan != request.plan:
        yield f'sharding.plan = "{other.plan}"'
    if other.rules != request.rules:
        yield "sharding.tables = [] (no rules)"
    if other.exchange_dtype != request.exchange_dtype:
        yield f'sharding.exchange_dtype = "{other.exchange_dtype}"'
    if other.global_size != request.global_size:
        yield f"batch.global_size = {other.global_size}"
    if other.chunk_size != request.chunk_size:
        # Alone, a smaller chunk changes memory and speed, but not what is learned.
        is_alone = (other.global_size, changed) == (request.global_size, topology)
        yield f"batch.chunk_size = {other.chunk_size} ({'or less; the result is the same' if is_alone else 'or less'})"
