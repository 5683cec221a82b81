"""Weights & Biases: a run of a project, in files that `wandb sync` sends, or on the server at once."""

import re
from collections.abc import Sequence

import wandb  # pyright: ignore[reportMissingImports]

from dlrm.config import WandbConfig
from dlrm.trackers.tracker import Figures, Position, RunEnd, TrackedRun

POSITION = "wandb.json"
MAX_TAG_LENGTH = 64
_ODD = re.compile(r"[/\\#?%:]")


class Wandb:
    """One run of W&B; each attempt of a job continues it."""

    def __init__(self, config: WandbConfig) -> None:
        self._config = config

    def start(self, run: TrackedRun) -> Position:
        self._position = run.directory / POSITION
        self._run = wandb.init(
            project=_ODD.sub("_", self._config.project),
            mode=self._config.mode,
            id=run.key,
            resume="allow",
            name=run.name,
            dir=str(run.directory),
            config=dict(run.settings),
            tags=[f"{name}:{value}"[:MAX_TAG_LENGTH] for name, value in run.labels.items()],
            # What the machine and the checkout look like is none of a tracker's business.
            settings=wandb.Settings(
                console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True, silent=True
            ),
        )
        self._run.summary.update({"job_id": run.job_id, "attempt": run.attempt})
        return Position.read(self._position) or Position()

    def log(self, figures: Sequence[Figures], position: Position) -> None:
        for at_step in figures:
            self._run.log(dict(at_step.values), step=at_step.step)
        position.write(self._position)

    def finish(self, end: RunEnd) -> None:
        last = {**end.figures.values, "outcome": end.outcome.state, "reason": str(end.outcome.reason)}
        self._run.summary.update(last | ({"model_path": end.model_path} if end.model_path else {}))
        self._run.finish(exit_code=end.outcome.exit_code)
