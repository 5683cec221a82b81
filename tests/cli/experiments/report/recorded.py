"""Results of a sweep for tests of its report: lines as `dlrm sweep` writes them, with scores of rows that are drawn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cli.experiments.trials.results import (
    FILE_NAME,
    CurvePoint,
    Environment,
    KeptScores,
    Stage,
    TrialOutcome,
    TrialResult,
    append_result,
)
from dlrm.metrics.binary import compute_binary_metrics

NUM_ROWS = 400
NUM_SAMPLES = 1_000_000
BATCHES = (1024, 4096, 16_384)
SEEDS = (10, 11, 12)
CRITICAL_BATCH = 6000.0
NOISE_SCALE = 7000.0
SIGNAL = {"adam": 1.0, "lamb": 1.6}
"""Part of the labels in the logits of each method."""
ENVIRONMENT = Environment(
    versions={"python": "3.11.7", "torch": "2.13.0+cpu"}, processor="a processor", num_cores=2, memory_bytes=2**34
)


def draw_labels(seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(NUM_ROWS) < 0.3).astype(np.float32)


def draw_logits(method: str, batch: int, seed: int, labels: np.ndarray) -> np.ndarray:
    """Logits of a model, whose noise is for the most part that of the rows, and common to all models."""
    of_rows = np.random.default_rng(99).normal(size=len(labels))
    own = np.random.default_rng([batch, seed, len(method)]).normal(size=len(labels))
    return (SIGNAL[method] * labels + of_rows + 0.3 * own - 1.0).astype(np.float32)


def make_curve(batch: int, gap: float | None = None) -> list[CurvePoint]:
    """A curve that rises in a line, so that a target is reached after samples as of CRITICAL_BATCH."""
    slope = 0.3 / NUM_SAMPLES / (1.0 + batch / CRITICAL_BATCH)
    points: list[CurvePoint] = []
    for part in range(1, 11):
        samples = NUM_SAMPLES * part // 10
        auc = 0.5 + slope * samples
        train = None if gap is None else auc + gap
        step = -(-samples // batch)
        points.append(CurvePoint(step=step, num_samples=samples, auc=auc, log_loss=0.6, train_auc=train))
    return points


def make_trial(
    directory: Path,
    method: str,
    batch: int,
    seed: int,
    stage: Stage = "confirm",
    *,
    rate: float = 0.01,
    outcome: TrialOutcome = "done",
    keeps_scores: bool = True,
    num_samples: int = NUM_SAMPLES,
    labels: np.ndarray | None = None,
    settings: Mapping[str, Any] | None = None,
) -> TrialResult:
    """Make the result of one trial, with its scores in `directory`."""
    key = f"{method}-{batch}-{seed}-{stage}-{rate:g}"
    rows = draw_labels() if labels is None else labels
    logits = draw_logits(method, batch, seed, rows)
    measured = compute_binary_metrics(rows, logits)
    metrics: dict[str, float | None] = {
        "auc": measured.auc,
        "auc_standard_error": measured.auc_standard_error,
        "log_loss": measured.log_loss,
        "validation_log_loss": 0.5 + abs(rate - 0.01),
        "noise_scale": NOISE_SCALE,
        "train_auc": (measured.auc or 0.0) + 0.01,
        **({"box_sharpness": 1.0 + batch / 4096, "hessian_eigenvalue": batch / 100} if method == "lamb" else {}),
    }
    is_done = outcome == "done"
    return TrialResult(
        key=key,
        stage=stage,
        method=method,
        settings=settings or {"dense_optimizer.learning_rate": rate},
        compared={"batch.global_size": batch},
        seed=seed,
        fraction=1.0,
        outcome=outcome,
        reason="completed" if is_done else outcome,
        metrics=metrics if is_done else {},
        num_steps=-(-num_samples // batch) if is_done else None,
        num_samples=num_samples if is_done else None,
        seconds=20.0,
        training_seconds=10.0,
        cpu_seconds=15.0,
        curve=make_curve(batch, gap=0.01) if is_done else [],
        decided={"run.patience": None},
        scores=_keep_scores(directory, key, logits, rows) if is_done and keeps_scores else None,
        environment=ENVIRONMENT,
        finished_at="2026-01-02T03:04:05+00:00",
    )


def _keep_scores(directory: Path, key: str, logits: np.ndarray, labels: np.ndarray) -> KeptScores:
    checksum = f"{int(labels @ np.arange(1, len(labels) + 1)):012x}"
    kept = KeptScores(
        logits=f"scores/{key}.npy", labels=f"scores/rows-{checksum}.npy", checksum=checksum, num_rows=len(labels)
    )
    (directory / "scores").mkdir(parents=True, exist_ok=True)
    np.save(directory / kept.logits, logits)
    np.save(directory / kept.labels, labels)
    return kept


def list_trials(directory: Path) -> list[TrialResult]:
    """List the trials of a whole sweep of two methods at three batches, of which one setting diverges."""
    trials: list[TrialResult] = []
    for batch in BATCHES:
        for method in SIGNAL:
            for rate in (0.001, 0.01, 0.1):
                outcome: TrialOutcome = "diverged" if rate == 0.1 and method == "adam" else "done"
                trials.append(make_trial(directory, method, batch, 0, "grid", rate=rate, outcome=outcome))
            trials += [make_trial(directory, method, batch, seed) for seed in SEEDS]
    return trials


def write_results(directory: Path, trials: Sequence[TrialResult]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for trial in trials:
        append_result(directory / FILE_NAME, trial)
    return directory
