"""Trials of a sweep: each a job document with its seed, known by a key that another machine computes alike."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cli.experiments.sweep.document import Sweep
from cli.experiments.trials.fields import (
    VALIDATION_FRACTION,
    Settings,
    fix_end,
    format_value,
    get_field,
    is_open,
    parse_trial,
    set_fields,
)
from cli.experiments.trials.results import Stage
from cli.experiments.trials.runner import Trial
from cli.local.errors import BadInputError
from dlrm.config import EXECUTION_SETTINGS, JobSpec

MAX_FAULTS = 10
"""Largest number of faults that are listed: one setting often has the faults of all."""


def make_trial(
    sweep: Sweep, stage: Stage, method: str, compared: Settings, settings: Settings, seed: int, fraction: float = 1.0
) -> Trial:
    """Make a trial. Raises BadInputError if its document is not valid."""
    config = sweep.config
    varied = {**config.methods[method].fields, **compared, **settings}
    try:
        document = set_fields(sweep.job, {**config.fields, **varied, "run.seed": seed})
        document = set_fields(document, _make_fixed_settings(document))
        if fraction != 1.0:
            epochs = get_field(document, "run.epochs")
            if not isinstance(epochs, int | float):
                raise BadInputError(
                    "run.epochs: [halving] needs a number of epochs (valid: set it in the job or in [set])"
                )
            document = set_fields(document, {"run.epochs": float(f"{epochs * fraction:.6g}")})
    except BadInputError as error:
        raise BadInputError(*(line.removeprefix("--set ") for line in error.lines)) from None
    spec = parse_trial(document)
    return Trial(
        key=_make_key(spec, varied),
        stage=stage,
        method=method,
        settings={**settings},
        compared={**compared},
        seed=seed,
        fraction=fraction,
        document=document,
        spec=spec,
    )


def _make_fixed_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is set for all trials if the document leaves it open, and no end that evaluation rows decide.

    A trial has rows to choose by and no models beside it, and keeps its scores.
    """
    fixed: dict[str, Any] = {
        "run.validation_fraction": VALIDATION_FRACTION,
        "run.blend": "none",
        "run.yardsticks": "none",
        "run.keep_scores": True,
    }
    return {field: value for field, value in fixed.items() if is_open(document, field)} | fix_end(document)


def check_all(sweep: Sweep) -> None:
    """Check the documents of all settings before the first is trained. Raises BadInputError."""
    faults: dict[str, None] = {}
    methods: dict[frozenset[str], str] = {}
    for method in sweep.config.methods:
        settings_of_method, combinations = sweep.config.list_settings(method), sweep.config.list_compared()
        keys: set[str] = set()
        faults_of_method: list[str] = []
        for compared in combinations:
            for settings in settings_of_method:
                found = _check_setting(sweep, method, compared, settings, len(settings_of_method))
                if isinstance(found, Trial):
                    keys.add(found.key)
                else:
                    faults_of_method += found
        num_jobs = len(combinations) * len(settings_of_method)
        if not faults_of_method and len(keys) < num_jobs:
            what = f"has {num_jobs} settings, of which only {len(keys)} are different job documents"
            faults[f"methods.{method}: {what} (valid: values that differ in what they change)"] = None
        faults |= dict.fromkeys(faults_of_method)
        if not faults_of_method and (first := methods.setdefault(frozenset(keys), method)) != method:
            what = f"has the same job documents as methods.{first}, so that there is nothing to compare"
            faults[f"methods.{method}: {what} (valid: methods that differ)"] = None
    if faults:
        shown = [*faults][:MAX_FAULTS]
        more = [f"and {len(faults) - MAX_FAULTS} more"] if len(faults) > MAX_FAULTS else []
        raise BadInputError(*(f"{sweep.path}: {line}" for line in [*shown, *more]))


def _check_setting(
    sweep: Sweep, method: str, compared: Settings, settings: Settings, num_settings: int
) -> Trial | list[str]:
    """Return a trial of a setting, or what is wrong with it."""
    given = {**compared, **settings}
    where = f"methods.{method}" + "".join(f", {field} = {format_value(value)}" for field, value in given.items())
    try:
        fraction = 1.0 if sweep.config.halving is None else 0.5
        trial = make_trial(sweep, "grid", method, compared, settings, sweep.config.seeds[0], fraction)
    except BadInputError as error:
        return [f"{where}: {line}" for line in error.lines]
    spec = trial.spec
    if sweep.config.halving is not None and spec.preset is not None and spec.batch.global_size == "auto":
        what = f"the preset {spec.preset} would choose smaller batches for the shorter runs of [halving]"
        return [f"methods.{method}: batch.global_size: {what} (valid: a number, in the job or in [set])"]
    run = spec.run
    if run.validation_fraction == 0.0 and (num_settings > 1 or run.keep_model == "best"):
        what = "settings" if num_settings > 1 else "the model that a run keeps"
        valid = 'above 0, or with one setting for each method run.keep_model = "last"'
        return [
            f"{where}: run.validation_fraction: is 0, so that the evaluation rows would choose {what} (valid: {valid})"
        ]
    return trial


def _make_key(spec: JobSpec, varied: Settings) -> str:
    """Hash a document. varied: fields in which trials of the sweep differ; they count in any case."""
    # Without defaults, so that a new field of a later version leaves the keys of earlier results as they are.
    identity = spec.model_dump(mode="json", exclude=EXECUTION_SETTINGS, exclude_defaults=True)
    # A section counts as not stated if only settings that are left out are in it.
    identity = {name: value for name, value in identity.items() if value != {} or name not in EXECUTION_SETTINGS}
    if spec.preset is not None and "auto" in (spec.batch.global_size, spec.model.architecture):
        # A preset chooses these by a rule of its own; its other values are in the fields that it has filled.
        identity["preset"] = spec.preset
    left_out = spec.model_dump(mode="json", include=EXECUTION_SETTINGS)
    named = {field: value for field in varied if (value := get_field(left_out, field)) is not None}
    text = json.dumps([identity, named], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
