"""`dlrm data inspect`, with the real program, and its page in a real browser."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.conftest import run

HOSTILE = "<img src=x onerror=alert(1)></script>"
N = 5000


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job on rows with a planted leak, a constant column, and one with a value of its own in every row."""
    directory = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    label = (draw.random(N) < 0.3).astype(np.int64)
    columns = {
        "label": label,
        "price": np.where(draw.random(N) < 0.25, np.nan, draw.normal(10.0, 2.0, N)),
        "refund": label * 3.0 + draw.normal(size=N) / 10,
        "version": np.ones(N),
        HOSTILE: [HOSTILE if row % 3 else f"site {row % 400}" for row in range(N)],
        "request": [f"r{row}" for row in range(N)],
    }
    pl.DataFrame(columns).write_parquet(directory / "rows.parquet")
    schema = {
        "label": "label",
        "dense": [{"name": name} for name in ("price", "refund", "version")],
        "categorical": [{"name": HOSTILE}, {"name": "request"}],
    }
    document = {
        "data": {"train": ["rows.parquet"], "format": "parquet", "schema": schema, "vocabulary": {"min_count": 4}},
        "model": {"embedding_dim": 8, "bottom_mlp": [8]},
    }
    path = directory / "job.json"
    path.write_text(json.dumps(document))
    return path


def test_one_line_of_json_says_what_is_in_the_data(written: str) -> None:
    report = json.loads(written)
    assert report["num_rows"] == N
    assert (report["embedding_dim"], report["min_count"]) == (8, 4)
    assert [warning["kind"] for warning in report["warnings"]] == ["leak", "constant", "one_value_a_row"]
    assert [warning["column"] for warning in report["warnings"]] == ["refund", "version", "request"]


def test_tables_for_people_name_columns_figures_and_warnings(job: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("data", "inspect", str(job))
    assert ended.code == 0, ended.err
    for text in (
        f"all {N:,} rows",
        "leak refund: ",
        "it is all but the label itself",
        "constant version",
        HOSTILE,
        "min_count 4",
    ):
        assert text in ended.out


def test_sequences_are_said_to_be_in_the_table_of_their_target(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    rows = pl.DataFrame({"label": [0, 1] * 50, "film": [*range(50)] * 2, "seen": [[row % 50, 3] for row in range(100)]})
    rows.write_parquet(tmp_path / "rows.parquet")
    sequence = {"target": "film", "max_length": 5}
    columns: list[dict[str, Any]] = [{"name": "film", "type": "integer"}]
    columns.append({"name": "seen", "type": "integer", "multi_hot": True, "sequence": sequence})
    data = {"train": ["rows.parquet"], "format": "parquet", "schema": {"categorical": columns}}
    job, page = tmp_path / "job.json", tmp_path / "page.html"
    job.write_text(json.dumps({"data": data, "model": {"embedding_dim": 8, "bottom_mlp": [8]}}))
    ended = dlrm("data", "inspect", str(job), "--html", str(page))
    assert ended.code == 0, ended.err
    assert "seen: read from the table of film" in ended.out
    # All the tables: 50 films and two shared rows, of 8 numbers and one of Adagrad.
    assert f"{52 * 4 * 9 / 1024:.1f} KiB at min_count" in ended.out.replace("\n", " ")
    assert "read from the table of film</td>" in page.read_text()


@pytest.mark.slow
def test_a_sample_is_called_one(job: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("data", "inspect", str(job), "--rows", "1000")
    assert "a sample of 1,000 of 5,000 rows (20.0 %), spread evenly" in ended.out


@pytest.mark.slow
def test_a_prepared_directory_can_be_looked_at(job: Path, tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    assert dlrm("prepare", str(job), "-o", str(tmp_path / "packed"), "--threads", "1").code == 0
    ended = dlrm("data", "inspect", str(tmp_path / "packed"), "--json")
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    assert "refund" in [warning["column"] for warning in report["warnings"] if warning["kind"] == "leak"]
    assert 0 < report["num_rows"] < N


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.tsv"], "no such file: nowhere.tsv"),
        (["JOB", "--html", "nowhere/report.html"], "--html nowhere/report.html: not a file that can be written"),
        (["JOB", "--html", "."], "--html .: not a file that can be written"),
        (["DATA"], "need a schema"),
    ],
)
def test_bad_input_is_one_line(job: Path, dlrm: Callable[..., Any], arguments: list[str], said: str) -> None:
    words = {"JOB": str(job), "DATA": str(job.parent / "rows.parquet")}
    ended = dlrm("data", "inspect", *(words.get(argument, argument) for argument in arguments))
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert said in line


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.slow)])
def page(job: Path, written: str, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The report in a browser; it must ask for nothing but itself and throw no errors."""
    del written  # The page is there then.
    context = browser.new_context(color_scheme=request.param, offline=True)
    page = context.new_page()
    faults: list[str] = []
    address = (job.parent / "report.html").as_uri()
    page.on("request", lambda request: request.url in (address, "data:,") or faults.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: message.type in ("error", "warning") and faults.append(message.text))
    page.goto(address)
    yield page
    context.close()
    assert faults == []


@pytest.fixture(scope="module")
def written(job: Path) -> str:
    """What the command prints as JSON, with a page written to report.html."""
    ended = run("data", "inspect", job, "--json", "--html", job.parent / "report.html")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.browser
def test_every_plot_of_the_page_is_drawn_with_words_beside_it(page: Page) -> None:
    plots = page.locator(".plot")
    kinds = [plots.nth(place).get_attribute("data-plot") for place in range(plots.count())]
    assert sorted(kinds) == ["curve", "curve", "histogram", "histogram", "histogram", "rate"]
    # The second figure, of missing values, is a table.
    assert page.locator("figure").count() == plots.count() + 1
    for place in range(plots.count()):
        expect(plots.nth(place).locator("canvas")).to_be_visible()
        assert int(plots.nth(place).get_attribute("data-points") or 0) > 0
        assert page.evaluate(IS_PAINTED, place)
        expect(page.locator("figure").nth(place + (place > 0)).locator("figcaption")).not_to_be_empty()


@pytest.mark.browser
def test_plots_below_the_screen_are_drawn_before_anyone_scrolls_there(page: Page) -> None:
    assert page.evaluate("scrollY") == 0
    last = page.locator(".plot").last
    box = last.bounding_box()
    viewport = page.viewport_size
    assert box is not None
    assert viewport is not None
    assert box["y"] > viewport["height"]
    assert page.evaluate(IS_PAINTED, page.locator(".plot").count() - 1)


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_prints_with_every_plot(page: Page, tmp_path: Path) -> None:
    printed = page.pdf(print_background=True)
    plots = page.locator(".plot").count()
    page.evaluate("document.querySelectorAll('.plot').forEach(plot => plot.replaceChildren())")
    without = page.pdf(print_background=True)
    # A plot is an image in the file.
    assert printed.count(b"/Subtype /Image") - without.count(b"/Subtype /Image") >= plots


IS_PAINTED = """place => {
  const canvas = document.querySelectorAll(".plot")[place].querySelector("canvas");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return pixels.some((value, index) => index % 4 === 3 && value > 0);
}"""


@pytest.mark.browser
def test_the_page_says_what_is_wrong_and_escapes_what_the_data_holds(page: Page) -> None:
    expect(page.locator('#warnings li.serious[data-kind="leak"]')).to_contain_text("refund")
    expect(page.locator("#missing tbody tr")).to_have_count(1)
    expect(page.locator("#missing tbody tr")).to_contain_text("price")
    expect(page.locator("h4", has_text=HOSTILE)).to_be_visible()
    assert page.locator("main img").count() == 0


@pytest.mark.browser
def test_a_narrow_screen_needs_no_sideways_scrolling(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.locator(".plot").first.scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
