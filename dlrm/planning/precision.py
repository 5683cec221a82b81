"""Warns of a precision that the processor is slow in. Imports no torch."""

from dlrm.config import DerivedWarning, JobSpec

SLOW_PRECISION = "slow_precision"
"""Name of the warning about slow products in bf16 on a processor."""


def check_precision(job: JobSpec, has_bf16_products: bool | None) -> DerivedWarning | None:
    """Warn of products in bf16 on a processor without instructions for them.

    has_bf16_products: whether the processor that the job runs on has such instructions; None if nobody knows.
    """
    if job.precision != "bf16" or job.resources.gpus_per_worker or has_bf16_products is not False:
        return None
    message = (
        'precision: products in "bf16" are several times slower than in "fp32" on this processor, which has no '
        'instructions for them (avx512_bf16, amx_bf16, or bf16 of Arm); set "fp32"'
    )
    return DerivedWarning(name=SLOW_PRECISION, message=message)
