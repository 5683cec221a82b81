"""The rows of flights, from files as those of their package."""

import zipfile
from pathlib import Path

from benchmarks.make_flights import CATEGORICAL, DENSE, make_rows

FLIGHTS = """\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,\
air_time,distance,hour,minute,time_hour
2013,10,2,NA,900,NA,NA,1100,NA,UA,7,N1,EWR,IAH,NA,1400,9,0,2013-10-02T13:00:00Z
2013,10,1,2301,2300,1,130,114,16,UA,15,N1,EWR,IAH,200,1400,23,0,2013-10-02T03:00:00Z
2013,2,5,517,515,2,825,810,15,DL,3,N2,JFK,BQN,227,1576,5,15,2013-02-05T10:00:00Z
"""
WEATHER = """\
origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour
EWR,2013,10,1,23,61.5,50,70.5,NA,8,NA,0,1012.5,10,2013-10-02T03:00:00Z
JFK,2013,2,5,6,20,10,40,270,4,NA,0,NA,9,2013-02-05T11:00:00Z
"""
PLANES = """\
tailnum,year,type,manufacturer,model,engines,seats,speed,engine
N1,1999,Fixed wing multi engine,BOEING,737-824,2,149,NA,Turbo-fan
"""
AIRPORTS = """\
faa,name,lat,lon,alt,tz,dst,tzone
IAH,Houston,29.5,-95.25,97,-6,A,America/Chicago
"""


def write_package(directory: Path) -> Path:
    for name, text in {"weather": WEATHER, "planes": PLANES, "airports": AIRPORTS}.items():
        (directory / f"{name}.csv").write_text(text)
    with zipfile.ZipFile(directory / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    return directory


def test_flights_that_arrived_are_rows_in_the_order_of_their_schedule(tmp_path: Path) -> None:
    early, late = make_rows(write_package(tmp_path)).to_pylist()
    # 15 minutes are not late, 16 are.
    assert (early["label"], late["label"]) == (0, 1)
    assert [early[name] for name in CATEGORICAL] == [
        # 5 February 2013 was a Tuesday, day 1; the plane is not known.
        *("DL", "3", "N2", "JFK", "BQN", "2", "5", "1", "5", "nan", "nan", "nan", "JFK-BQN", "DL-JFK-BQN"),
    ]
    # The day of the week is that of New York, where it was still 1 October, a Tuesday too.
    assert [late[name] for name in CATEGORICAL[4:9]] == ["IAH", "10", "1", "1", "23"]
    assert [late[name] for name in DENSE] == [
        *(23 * 60, 1400.0, 61.5, 50.0, 70.5, None, 8.0, 0.0, 1012.5, 10.0, 1999.0, 149.0, 29.5, -95.25, 97.0)
    ]
    # Of its origin there is weather of another hour alone.
    assert [early[name] for name in DENSE] == [5 * 60 + 15, 1576.0, *[None] * 13]
