"""Document of a sweep, SWEEP.toml: the job, what is changed in it, and how settings are chosen and confirmed."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from cli.experiments.trials.fields import Settings

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,38}[A-Za-z0-9])?$")]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Grid = dict[str, list[Any]]


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a table sets, by dotted path; an inner table sets its own fields, an empty one itself.

    `"a.b" = 1`, `a.b = 1` and `a = { b = 1 }` are the same.
    """
    return dict(list_fields(table))


def list_fields(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """List the fields that a table sets with their values, as `flatten` does, a field in two spellings twice."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from list_fields(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _flatten_if_table(value: Any) -> Any:
    return flatten(cast("dict[str, Any]", value)) if isinstance(value, dict) else value


class MethodConfig(_Config):
    """One of the methods that are compared: what it changes in the job."""

    fields: dict[str, Any] = {}
    """Values of fields of the job document, by dotted path; written into the table of the method itself."""
    grid: Grid = {}
    """Values to try of a field by this method alone; they replace the values of the field in `[grid]`."""

    @model_validator(mode="before")
    @classmethod
    def _collect_fields(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        table = cast("dict[str, Any]", document)
        fields = flatten({name: value for name, value in table.items() if name != "grid"})
        return {"fields": fields, "grid": _flatten_if_table(table.get("grid", {}))}


class HalvingConfig(_Config):
    """Successive halving: short runs of all settings, longer ones of the best third."""

    rungs: int = Field(default=3, ge=2, le=3)
    """Number of lengths of runs: 3 begins with a ninth of the epochs, 2 with a third. Fewer if the settings are fewer
    than 3, or 9."""


class SweepConfig(_Config):
    """A sweep, as its document states it. Every field except `job` has a default."""

    name: Name = "sweep"
    """Name of the sweep, in the default output directory and on jobs of a service; the name of the file if left out."""
    job: str | dict[str, Any]
    """Job document that all trials change: a path relative to the sweep's file, or a table with the document itself."""
    fields: dict[str, Any] = Field(default={}, alias="set")
    """Values of fields of the job document that all trials have, by dotted path."""
    methods: dict[Name, MethodConfig] = Field(default_factory=lambda: {"job": MethodConfig()}, min_length=1)
    """Methods by name. Each is tried with the same number of settings; without any, the job as it is."""
    grid: Grid = {}
    """Values to try of fields of the job document, by dotted path: every combination, for every method."""
    compare: list[str] = []
    """Fields of `[grid]` over whose values nothing is chosen: each combination has its own best setting."""
    seeds: list[Seed] = Field(default=[0], min_length=1)
    """Values of `run.seed` with which every setting is trained; the mean over them chooses."""
    confirm_seeds: list[Seed] = []
    """Values of `run.seed` with which the best settings are trained again. These runs alone are the result; without
    any, the runs that chose are the result."""
    halving: HalvingConfig | None = None
    """Successive halving in place of the whole grid; left out: every setting is trained to the end."""
    minutes: float | None = Field(default=None, gt=0.0)
    """Minutes for all runs together, by earlier commands too; left out: no limit."""
    parallel: int = Field(default=4, ge=1, le=1000)
    """Jobs of a service that are submitted and not ended at the same time; a machine trains one trial after another."""
    allow_unequal_effort: bool = False
    """Whether methods may have different numbers of settings, which favours the ones with more."""

    @model_validator(mode="before")
    @classmethod
    def _flatten_tables(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        table = cast("dict[str, Any]", document)
        return table | {name: _flatten_if_table(table[name]) for name in ("set", "grid") if name in table}

    def list_grids(self) -> dict[str, Grid]:
        """List the tables of values to try by name."""
        return {"grid": self.grid} | {f"methods.{name}.grid": method.grid for name, method in self.methods.items()}

    def list_settings(self, method: str) -> list[Settings]:
        """List the settings that are tried of a method: every combination of its values."""
        return _multiply(self.get_grid(method))

    def list_compared(self) -> list[Settings]:
        """List the combinations of the compared values."""
        return _multiply({field: self.grid[field] for field in self.compare})

    def get_grid(self, method: str) -> Grid:
        """Return the values that are tried of a method, by field, without the compared fields."""
        common = {field: values for field, values in self.grid.items() if field not in self.compare}
        return common | self.methods[method].grid


def _multiply(grid: Grid) -> list[Settings]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
