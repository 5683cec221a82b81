"""Rules on the batch: the noise scale of its gradient, and the steps that it leaves.

With the noise scale N, a run with batch B takes 1 + N / B times the fewest steps and 1 + B / N times the fewest samples
to the same loss: (S / Smin - 1) (E / Emin - 1) = 1 (McCandlish et al. 2018, arXiv 1812.06162, section 2.3).
"""

import math
from dataclasses import dataclass
from typing import Any

from dlrm.record import MIN_STEPS_OF_RUN
from service.advice.draft import Draft, Rank
from service.advice.epochs import MORE_PASSES, change_epochs, lengthen
from service.advice.facts import Facts, get_field
from service.advice.wording import format_number, format_samples, format_times
from service.schemas import AdvisedGain

MAX_SAMPLES = 0.5
"""Largest share of the samples with a smaller batch that is advised. The estimate is cautious: critical batches that
were measured were several times as large (docs/large-batch.md), so that a gain below two may be none."""
MAX_STEPS = 0.25
"""Largest share of the steps with a larger batch that is advised: it takes more samples for them."""
MIN_STEPS = 240
"""Steps that a larger batch has to leave: runs with fewer have lost AUC (docs/large-batch.md)."""
MAX_SHARE = {False: 2048, True: 65_536}
"""Largest share of a rank, in samples, by whether it has a GPU, with which a larger batch may be faster: as much as it
takes at a time. Steps of more are busy anyway."""


@dataclass(frozen=True)
class _Noise:
    """Noise scale of a run in samples, and the cost of the run as multiples of the fewest samples and steps."""

    scale: float
    low: float
    high: float
    batch: int
    useful: int
    own_samples: float
    own_steps: float
    num_samples: int
    """Samples that the run has trained on, or will have."""
    source: str

    def count_samples(self, batch: int) -> float:
        """Compute the samples of a run with another batch, as a multiple of this run's."""
        return (1 + batch / self.scale) / self.own_samples

    def count_steps(self, batch: int) -> float:
        """Compute the steps of a run with another batch, as a multiple of this run's."""
        return (1 + self.scale / batch) / self.own_steps


def advise_smaller_batch(facts: Facts) -> Draft | None:
    """Advise a batch near the noise scale where this run's is far above it."""
    noise = _find_noise(facts)
    if noise is None or noise.batch <= noise.high:
        return None
    batch = _fit(noise.useful, facts.world_size)
    samples, steps = noise.count_samples(batch), noise.count_steps(batch)
    if batch >= noise.batch or samples > MAX_SAMPLES:
        return None
    saved = noise.num_samples * (1 - samples)
    times = format_times(noise.batch / noise.scale)
    epochs, of_run = _rescale_epochs(facts, noise, samples)
    message = (
        f"The batch of {noise.batch:,} is {times} times the noise scale of {format_samples(noise.scale)} samples: at "
        f"{batch:,} the same loss takes {format_times(1 / samples)} times fewer samples, {of_run}, in "
        f"{format_times(steps)} times as many steps."
    )
    return Draft(
        "batch_above_noise",
        Rank.DATA,
        1 - samples,
        message,
        "medium",
        f"{noise.source} The estimate is from the dense parameters alone: embeddings of rare ids may need more epochs. "
        "Another batch needs its own learning rate.",
        change_epochs(facts, epochs) | _change_batch(facts, batch),
        AdvisedGain(value=saved, unit="samples", words=f"{format_samples(saved)} samples fewer") if saved else None,
    )


def advise_larger_batch(facts: Facts) -> Draft | None:
    """Advise a batch nearer the noise scale where this run's is far below it, and a rank has too little to do."""
    noise = _find_noise(facts)
    share = 0 if noise is None else noise.batch // facts.world_size
    if noise is None or noise.batch * 2 > noise.low or share > MAX_SHARE[facts.is_on_gpus]:
        return None
    # A batch beyond an epoch would be no larger than the epoch.
    batch = _fit(min(noise.useful, int(facts.num_run_samples / facts.get("run.epochs"))), facts.world_size)
    while batch > noise.batch and noise.num_samples * noise.count_samples(batch) < MIN_STEPS * batch:
        batch = _fit(batch // 2, facts.world_size)
    samples, steps = noise.count_samples(batch), noise.count_steps(batch)
    if batch <= noise.batch or steps > MAX_STEPS:
        return None
    saved = facts.num_steps_done * (1 - steps)
    epochs, of_run = _rescale_epochs(facts, noise, samples)
    message = (
        f"The batch of {noise.batch:,} is {format_times(noise.scale / noise.batch)} times below the noise scale of "
        f"{format_samples(noise.scale)} samples: {batch:,} takes {format_times(1 / steps)} times fewer steps to the "
        f"same loss, with {format_times(samples)} times the samples, {of_run}."
    )
    return Draft(
        "batch_below_noise",
        Rank.SPEED,
        0.0,
        message,
        "low",
        f"{noise.source} Whether the run gets faster depends on how much longer a step of {batch:,} takes."
        + (f" {MORE_PASSES}" if epochs > 1 else ""),
        lengthen(facts, epochs) | _change_batch(facts, batch),
        AdvisedGain(value=saved, unit="steps", words=f"{format_samples(saved)} steps fewer") if saved else None,
    )


def advise_more_steps(facts: Facts) -> Draft | None:
    """Advise a smaller batch, or more epochs, where a run has too few steps to learn in."""
    num_steps, samples = facts.progress.get("num_steps"), facts.num_run_samples
    batch = facts.get("batch.global_size")
    if not num_steps or not samples or not isinstance(batch, int):
        return None
    least = facts.min_steps
    if num_steps >= least:
        return None
    if facts.course is not None and facts.course.has_overfitted and facts.get("run.epochs") > 1:
        return _advise_steps_of_one_epoch(facts, num_steps, samples, batch)
    smaller = _fit(2 ** int(math.log2(max(1, samples // least))), facts.world_size)
    if smaller * least <= samples and smaller < batch:
        changes, remedy = _change_batch(facts, smaller), f"a batch of {smaller:,} makes {samples // smaller:,}"
    else:
        epochs = facts.get("run.epochs") * math.ceil(100 * least / num_steps) / 100
        changes, remedy = change_epochs(facts, epochs), f"{format_number(epochs)} epochs make {least}"
    return Draft(
        "few_steps",
        Rank.QUALITY,
        1.0,
        f"The run has only {num_steps} steps of {batch:,}, {_explain_few(least)}: {remedy}.",
        "high" if least == MIN_STEPS_OF_RUN else "medium",
        "The steps are counted.",
        changes,
    )


def _explain_few(least: int) -> str:
    if least == MIN_STEPS_OF_RUN:
        return f"and below {least} it hardly learns"
    return f"and with so large a batch runs of fewer than {least} have lost AUC"


def _advise_steps_of_one_epoch(facts: Facts, num_steps: int, samples: int, batch: int) -> Draft | None:
    """Advise a smaller batch in one epoch where a run of few steps got worse in passes over the same rows."""
    least, samples = facts.min_steps, round(samples / facts.get("run.epochs"))
    smaller = _fit(2 ** int(math.log2(max(1, samples // least))), facts.world_size)
    if smaller * least > samples or smaller >= batch:
        return None
    return Draft(
        "few_steps",
        Rank.QUALITY,
        1.0,
        f"The run has only {num_steps} steps of {batch:,}, {_explain_few(least)}, and it got worse in later passes "
        f"over the same rows: a batch of {smaller:,} makes {samples // smaller:,} steps of one epoch.",
        "medium",
        "The steps are counted, and the last evaluations were worse than the best one.",
        _change_batch(facts, smaller) | change_epochs(facts, 1.0),
    )


def _find_noise(facts: Facts) -> _Noise | None:
    """Find the noise scale that a run is advised by; None if it is not reliable yet."""
    advice = facts.batch_advice
    if advice is not None and advice.noise_scale and advice.table and advice.largest_useful_batch:
        row = advice.table[0]
        low, high = advice.noise_scale_low or advice.noise_scale, advice.noise_scale_high or advice.noise_scale
        return _Noise(
            advice.noise_scale,
            low,
            high,
            advice.batch,
            advice.largest_useful_batch,
            row.samples_of_fewest / row.samples,
            row.steps_of_fewest / row.steps,
            int(facts.metrics.get("num_samples") or facts.num_run_samples),
            f"The noise scale is between {format_samples(low)} and {format_samples(high)} in 95 of 100 runs.",
        )
    large, batch = facts.large_batch, facts.progress.get("global_size")
    is_growing = bool(facts.get("batch.schedule") or facts.get("batch.growth"))
    if large is None or not batch or is_growing or large.noise_scale <= 0:
        return None
    scale = large.noise_scale
    return _Noise(
        scale,
        scale,
        scale,
        batch,
        large.largest_useful_batch,
        1 + batch / scale,
        1 + scale / batch,
        facts.num_run_samples,
        "The run has warned of it, with a noise scale that is certain to a factor of four.",
    )


def _fit(batch: int, world_size: int) -> int:
    """Return the largest batch up to `batch` that all ranks share evenly, one sample each at least."""
    return max(world_size, batch // world_size * world_size)


def _rescale_epochs(facts: Facts, noise: _Noise, samples: float) -> tuple[float, str]:
    """Return the epochs of a run with a multiple of this run's samples, and both numbers of epochs in words."""
    own = facts.get("run.epochs")
    # A run that has ended early has the samples of fewer epochs.
    share = noise.num_samples / facts.num_run_samples if facts.num_run_samples else 1.0
    epochs = float(f"{own * share * samples:.3g}")
    return epochs, f"{format_number(epochs)} instead of {format_samples(own * share)} epochs"


def _change_batch(facts: Facts, batch: int) -> dict[str, Any]:
    """Return the changes of a document that give it a batch of one size."""
    changes: dict[str, Any] = {"batch.global_size": batch}
    # An automatic schedule would follow the batch.
    if get_field(facts.spec, "batch.schedule"):
        changes["batch.schedule"] = []
    if facts.get("batch.growth"):
        changes["batch.growth"] = False
    chunk = facts.get("batch.chunk_size")
    if isinstance(chunk, int) and chunk > batch // facts.world_size:
        changes["batch.chunk_size"] = "auto"
    return changes
