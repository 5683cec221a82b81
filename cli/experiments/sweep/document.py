"""Reading of a sweep's document, with checks across several of its fields, and of the job that trials change."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from cli.experiments.sweep.config import SweepConfig, flatten, list_fields
from cli.local.documents import read_document, read_job
from cli.local.errors import BadInputError
from dlrm.config import ConfigError, FieldError, parse_job, translate_errors

SEED = "run.seed"
MAX_NAME = 40
"""Largest number of characters of a name."""


@dataclass(frozen=True)
class Sweep:
    """A sweep with its job document."""

    path: Path
    """File of the sweep's document, for error messages."""
    config: SweepConfig
    job_path: Path
    """File that the relative paths of the job document are beside."""
    job: dict[str, Any]
    """Job document as written, which every trial changes."""


def read_sweep(path: Path, minutes: float | None = None) -> Sweep:
    """Read the document of a sweep. Raises BadInputError, with a line for each fault.

    minutes: time for all runs together, in place of the time in the document.
    """
    document = read_document(path)
    if table_faults := _list_table_faults(document):
        raise BadInputError(*(f"{path}: {fault}" for fault in table_faults))
    try:
        given = {} if minutes is None else {"minutes": minutes}
        config = SweepConfig.model_validate({"name": _make_name(path)} | document | given)
    except ValidationError as error:
        faults = ConfigError(translate_errors(error, SweepConfig)).errors
    else:
        faults = _list_faults(config)
        if not faults:
            job_path, job = _read_base(path, config)
            if not (faults := _list_emptied(config, job)):
                return Sweep(path, config, job_path, job)
    raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def _make_name(path: Path) -> str:
    """Return the name of a file as a name of a sweep."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in path.stem)
    return name[:MAX_NAME].strip("-") or "sweep"


def _read_base(path: Path, config: SweepConfig) -> tuple[Path, dict[str, Any]]:
    """Read the job document, from its own file or from the sweep's, and return the file with it."""
    if isinstance(config.job, str):
        job = path.parent / config.job
        if not job.is_file():
            raise BadInputError(f"{path}: job: no file: {job} (valid: a path relative to the sweep's file, or a table)")
        return job, read_job(job)[0]
    try:
        parse_job(config.job)
    except ConfigError as error:
        raise BadInputError(*(f"{path}: job.{fault}" for fault in error.errors)) from None
    return path, config.job


def _list_faults(sweep: SweepConfig) -> list[FieldError]:
    """List what is wrong with a sweep whose fields are each valid."""
    return [
        *_list_seed_faults(sweep),
        *_list_compare_faults(sweep),
        *_list_overlaps(sweep),
        *_list_effort_faults(sweep),
    ]


def _list_table_faults(document: Mapping[str, Any]) -> list[FieldError]:
    """List faults of a document as read: fields written twice, and values to try that are no lists."""
    faults: list[FieldError] = []
    for name, table, is_grid in _list_tables(document):
        counts = Counter(field for field, _ in list_fields(table))
        twice = [field for field, count in counts.items() if count > 1]
        faults += [FieldError(f"{name}.{field}", "is written twice, in two spellings", "once") for field in twice]
        for field, values in flatten(table).items() if is_grid else ():
            if not isinstance(values, list) or not values:
                got = json.dumps(values, default=str)
                faults.append(FieldError(f"{name}.{field}", f"should be a list of values to try, got {got}", "[…]"))
    return faults


def _list_tables(document: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], bool]]:
    """List the tables of a document with fields of the job: name, table, and whether it has values to try."""
    tables = [("set", document.get("set"), False), ("grid", document.get("grid"), True)]
    methods = document.get("methods")
    if isinstance(methods, dict):
        for name, method in cast("dict[str, Any]", methods).items():
            if isinstance(method, dict):
                fields = cast("dict[str, Any]", method)
                own = {field: value for field, value in fields.items() if field != "grid"}
                tables += [(f"methods.{name}", own, False), (f"methods.{name}.grid", fields.get("grid"), True)]
    return [
        (name, cast("dict[str, Any]", table), is_grid) for name, table, is_grid in tables if isinstance(table, dict)
    ]


def _list_emptied(sweep: SweepConfig, job: Mapping[str, Any]) -> list[FieldError]:
    """List empty tables that would leave out fields of the job, or of all trials."""
    faults: dict[str, FieldError] = {}
    for name, method in sweep.methods.items():
        for table, fields, earlier in (
            ("set", sweep.fields, {"the job": flatten(job)}),
            (f"methods.{name}", method.fields, {"the job": flatten(job), "[set]": sweep.fields}),
        ):
            for field in (field for field, value in fields.items() if value == {}):
                for source, others in earlier.items():
                    if lost := [other for other in others if other.startswith(f"{field}.")]:
                        message = f"is an empty table, which would leave out {', '.join(lost)} of {source}"
                        valid = "leave it out, or state these fields in it again"
                        faults[f"{table}.{field}"] = FieldError(f"{table}.{field}", message, valid)
    return [*faults.values()]


def _list_seed_faults(sweep: SweepConfig) -> Iterator[FieldError]:
    stated = {"set": sweep.fields} | {f"methods.{name}": method.fields for name, method in sweep.methods.items()}
    for table, fields in [*stated.items(), *sweep.list_grids().items()]:
        if isinstance(fields.get("run"), list):
            yield FieldError(f"{table}.run", "its values would replace all of run", "fields of run")
        if SEED in fields:
            yield FieldError(f"{table}.{SEED}", "seeds and confirm_seeds set it", "leave it out")
    for field, seeds in (("seeds", sweep.seeds), ("confirm_seeds", sweep.confirm_seeds)):
        if len(set(seeds)) < len(seeds):
            yield FieldError(field, f"has a seed twice: {seeds}", "each seed once")
    if both := sorted({*sweep.seeds} & {*sweep.confirm_seeds}):
        message = f"has {', '.join(map(str, both))} of seeds too: the runs that choose must not be the result"
        yield FieldError("confirm_seeds", message, "other seeds than those of seeds")


def _list_compare_faults(sweep: SweepConfig) -> Iterator[FieldError]:
    for field in sweep.compare:
        if field not in sweep.grid:
            valid = ", ".join(sweep.grid) or "a field that [grid] has values of"
            yield FieldError("compare", f"{field} is not in [grid]", valid)
        for name, method in sweep.methods.items():
            if field in method.grid:
                message = "is compared, so that all methods have the same values of it"
                yield FieldError(f"methods.{name}.grid.{field}", message, "leave it out")
    if len({*sweep.compare}) < len(sweep.compare):
        yield FieldError("compare", "has a field twice", "each field once")
    for table, lists in sweep.list_grids().items():
        for field, values in lists.items():
            if any(one == other for one, other in combinations(values, 2)):
                yield FieldError(f"{table}.{field}", f"has a value twice: {values}", "each value once")


def _list_overlaps(sweep: SweepConfig) -> list[FieldError]:
    """List fields without effect, since a grid would replace them or their values, and fields of a grid in others."""
    faults: dict[str, FieldError] = {}

    def add(table: str, field: str, message: str, valid: str) -> None:
        faults.setdefault(f"{table}.{field}", FieldError(f"{table}.{field}", message, valid))

    for name, method in sweep.methods.items():
        grid = {**sweep.grid, **method.grid}
        # A method may try values of its own of a field that the others have from [set].
        common = [field for field in sweep.fields if field not in method.grid and field not in method.fields]
        stated = [*((f"methods.{name}", field) for field in method.fields), *(("set", field) for field in common)]
        of_grid = [("grid" if field in sweep.grid else f"methods.{name}.grid", field) for field in grid]
        for table, field in [*stated, *of_grid]:
            for tried in grid:
                if field.startswith(f"{tried}.") or (field == tried and (table, field) in stated):
                    what = f"the values of {tried} in the grid would replace it"
                    add(table, field, what, "either the field or its values in the grid")
        for table, field in stated:
            value = {**sweep.fields, **method.fields}[field]
            is_replaced = table == "set" and any(own.startswith(f"{field}.") for own in method.fields)
            for tried in grid if not isinstance(value, dict) and not is_replaced else ():
                if tried.startswith(f"{field}."):
                    what = f"is {json.dumps(value, default=str)}, which the values of {tried} in the grid would replace"
                    add(table, field, what, "a table, or no values of its fields in the grid")
    return [*faults.values()]


def _list_effort_faults(sweep: SweepConfig) -> Iterator[FieldError]:
    counts = {name: len(sweep.list_settings(name)) for name in sweep.methods}
    if len(set(counts.values())) > 1 and not sweep.allow_unequal_effort:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        message = f"have different numbers of settings: {listed}; the best of more settings looks better"
        yield FieldError("methods", message, "the same number for each, or allow_unequal_effort = true")
