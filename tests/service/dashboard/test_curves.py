"""The tabs of a job's curves and of its gradients: what is drawn, chosen, saved, and read by keys."""

import csv
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import text

from service.client import JobDetails
from service.dashboard.static_files import STATIC_PATH
from service.database import Database
from tests.service.dashboard.conftest import Site
from tests.service.seeding import add_steps

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {
    "DLRM_NUM_CORES": "2",
    "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2",
    "DLRM_GRACE_PERIOD_SECONDS": "5",
    "DLRM_RESTART_DELAY_SECONDS": "3000",
    "DLRM_MAX_RESTART_DELAY_SECONDS": "3000",
}
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}
UNKNOWN = "\N{EN DASH}"
NUM_STEPS = 5000
LOSSES = [0.4512 + 0.001 * (step % 97) for step in range(1, NUM_STEPS + 1)]
"""Losses that `add_steps` writes."""


def open_tab(page: Page, site: Site, tab: str, behaviour: str, state: str, **changes: Any) -> JobDetails:
    """Submit a job, open a tab of its page, and wait until it says that the job is in `state`."""
    job = site.client.submit({**DOCUMENT, "labels": {"behaviour": behaviour}, **changes})
    page.goto(f"{site.url}/jobs/{job.id}/{tab}")
    expect(page.locator("#state")).to_have_text(state)
    return site.client.job(job.id)


def find_database(job: JobDetails) -> Path:
    assert job.run_directory
    return Path(job.run_directory).parents[1] / "service.sqlite3"


def get_query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def run_module(page: Page, module: str, expression: str, argument: Any = None) -> Any:
    """Evaluate an expression over a `module` of the charts and an `argument` in the page."""
    imported = f"const module = await import('{STATIC_PATH}/charts/{module}.js')"
    script = f"async (argument) => {{ {imported}; return {expression}; }}"
    return page.evaluate(script, argument)


def compute_average(values: Sequence[float | None], weight: float) -> list[float | None]:
    """Compute the weighted mean of the known values up to each, as its definition says."""
    averages: list[float | None] = []
    for end, value in enumerate(values, start=1):
        known = [one for one in values[:end] if one is not None]
        weights = [weight ** (len(known) - 1 - place) for place in range(len(known))]
        mean = sum(one * own for one, own in zip(known, weights, strict=True)) / sum(weights) if known else None
        averages.append(None if value is None else mean)
    return averages


def test_curves_lose_what_is_void_go_on_and_are_shown_by_attempt(page: Page, site: Site) -> None:
    job = open_tab(page, site, "curves", "lose_two_steps_once", "recovering")
    loss, auc = page.locator("#loss-chart"), page.locator("#auc-chart")
    expect(loss).to_have_attribute("data-points", "4")
    expect(auc).to_have_attribute("data-points", "2")
    expect(page.locator("#attempts-control")).to_be_hidden()

    with closing(sqlite3.connect(find_database(job))) as connection, connection:
        connection.execute("UPDATE jobs SET restarts_at = '2026-01-01 00:00:00' WHERE id = ?", (job.id,))
    expect(loss).to_have_attribute("data-points", "2")
    expect(loss).to_have_attribute("data-marks", "2")
    expect(auc).to_have_attribute("data-points", "1")

    assert job.run_directory
    (Path(job.run_directory) / "go-on").touch()
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(loss).to_have_attribute("data-points", "5")
    expect(page.locator("#loss-summary")).to_have_text(
        "Loss: first 1.0000 at step 1, last 0.2000 at step 5, lowest 0.2000 at step 5."
    )
    page.get_by_label("Each attempt by itself").check()
    expect(loss.locator(".u-series:not(.unlisted) .u-label")).to_have_text(["step", "attempt 1", "attempt 2"])
    assert run_module(
        page, "curves", "new module.Curves(argument, 'training', ['loss'], {attempt: 1}).path", "/j"
    ).endswith("&attempt=1")
    page.get_by_label("Along the charts").select_option("time since start")
    page.reload()
    expect(loss.locator(".u-series:not(.unlisted) .u-label")).to_have_text(["time", "attempt 1", "attempt 2"])
    assert get_query(page) == {"x": ["time"], "attempts": ["each"]}


def test_further_tasks_and_figures_within_groups_have_charts_of_their_own(page: Page, site: Site) -> None:
    job = open_tab(page, site, "curves", "measure_tasks", "succeeded")
    titles = page.locator("#charts figure:not([hidden]) figcaption > span")
    own = ["Loss", "AUC", "Log-loss", "Normalized entropy", "Calibration"]
    of_tasks = ["AUC of buy", "Log-loss of buy", "Calibration of buy"]
    of_tasks += ["Root mean squared error of dwell", "Mean absolute error of dwell"]
    within_groups = ["AUC within groups", "Recall within groups", "NDCG within groups"]
    expect(titles).to_contain_text([*own, *of_tasks, *within_groups, "Learning rates", "Samples/s"])
    expect(page.locator("#task-buy-auc-chart")).to_have_attribute("data-points", "5")
    expect(page.locator("#task-buy-auc-summary")).to_have_text(
        "AUC of buy: first 0.6100 at step 1, last 0.6500 at step 5, highest 0.6500 at step 5."
    )
    expect(page.locator("#task-dwell-rmse-summary")).to_contain_text("lowest 0.4000 at step 5.")
    legend = page.locator("#ndcg-chart .u-series:not(.unlisted) .u-label")
    expect(legend).to_have_text(["step", "NDCG@1", "NDCG@5"])
    page.goto(f"{site.url}/jobs/{job.id}")
    tiles = page.locator("#tiles")
    for text_of_tile in ("AUC of buy", "Root mean squared error of dwell", "NDCG@5", "8 rows with its label"):
        expect(tiles).to_contain_text(text_of_tile)
    expect(tiles).to_be_visible()


@pytest.mark.slow
def test_a_long_curve_is_zoomed_finer_smoothed_saved_and_moved_by_keys(page: Page, site: Site, tmp_path: Path) -> None:
    job = open_tab(page, site, "curves", "bad_input", "failed")
    expect(page.locator("#empty")).to_contain_text("its overview says why")
    database = Database(f"sqlite:///{find_database(job)}")
    with database.write() as session:
        add_steps(session, job.id, NUM_STEPS)
    database.close()
    page.reload()
    loss = page.locator("#loss-chart")
    expect(loss).to_have_attribute("data-points", "625")
    expect(page.locator("#empty")).to_be_hidden()
    expect(page.locator("#auc")).to_be_hidden()

    box = loss.locator(".u-over").bounding_box()
    assert box is not None
    with page.expect_response(lambda response: "until=" in response.url) as finer:
        page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.375 * box["width"], box["y"] + 60, steps=3)
        page.mouse.up()
    assert finer.value.json()["training"]["steps_per_point"] == 1
    start, end = (float(get_query(page)[name][0]) for name in ("from", "to"))
    assert (start, end) == pytest.approx((1250, 1875), abs=20)
    expect(loss).to_have_attribute("data-points", str(len(finer.value.json()["training"]["steps"])))

    page.get_by_label("Smoothing").fill("0.5")
    table = save_loss(page, tmp_path / "loss.csv", f"{math.ceil(start)}-{math.floor(end)}")
    assert table[0] == ["step", "Loss", "Loss: smoothed"]
    steps = [int(row[0]) for row in table[1:]]
    assert (steps[0] - start, end - steps[-1]) == pytest.approx((0.5, 0.5), abs=0.5)
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert [float(row[1]) for row in table[1:]] == pytest.approx([LOSSES[step - 1] for step in steps], rel=1e-6)
    shown = finer.value.json()["training"]
    smoothed = dict(zip(shown["steps"], compute_average(shown["curves"]["loss"]["last"], 0.5), strict=True))
    assert [float(row[2]) for row in table[1:]] == pytest.approx([smoothed[step] for step in steps], rel=1e-6)

    loss.press("Escape")
    expect(page.locator("#zoom")).to_be_hidden()
    expect(loss).to_have_attribute("data-points", "625")
    loss.press("Home")
    expect(loss.locator(".u-value").first).to_have_text("8")
    expect(page.locator("#samples-per-second-chart .u-value").first).to_have_text("8")
    loss.press("ArrowRight")
    expect(loss.locator(".u-value").first).to_have_text("16")
    loss.press("+")
    expect(page.locator("#zoom-range")).to_have_text("step 8 to 2,508")
    page.get_by_role("button", name="Reset zoom").click()
    assert get_query(page) == {"smoothing": ["0.5"]}


@pytest.mark.slow
def test_the_legend_at_rest_names_the_step_of_the_last_finite_loss(page: Page, site: Site) -> None:
    job = open_tab(page, site, "curves", "bad_input", "failed")
    database = Database(f"sqlite:///{find_database(job)}")
    with database.write() as session:
        add_steps(session, job.id, 5)
        session.execute(text("UPDATE steps SET loss = NULL WHERE job_id = :id AND step > 2"), {"id": job.id})
    database.close()
    page.reload()
    loss = page.locator("#loss-chart")
    expect(loss).to_have_attribute("data-points", "5")
    values = loss.locator(".u-series:not(.unlisted) .u-value")
    expect(values.nth(0)).to_have_text("2")
    expect(values.nth(1)).to_have_text("0.4532")
    loss.press("End")
    expect(values.nth(0)).to_have_text("5")
    expect(values.nth(1)).to_have_text(UNKNOWN)


def save_loss(page: Page, path: Path, steps: str) -> list[list[str]]:
    """Save the chart of the loss as a picture and as CSV, named by its `steps`; return the rows of the latter."""
    for choice in ("Save as PNG", "Save as CSV"):
        page.get_by_label("Menu of Loss").click()
        with page.expect_download() as download:
            page.locator("#loss").get_by_role("button", name=choice).click()
        download.value.save_as(path)
        assert download.value.suggested_filename.endswith(f"-loss-steps-{steps}.{choice[-3:].lower()}")
        if choice.endswith("PNG"):
            assert path.read_bytes().startswith(b"\x89PNG")
    with path.open(newline="") as lines:
        return list(csv.reader(lines))


@pytest.mark.slow
def test_smoothing_scale_and_names_of_layers_are_what_their_formulas_say(page: Page, site: Site) -> None:
    page.goto(site.url)
    values = [0.7, None, 0.5, 0.9, None, 0.1, 0.3]
    for weight in (0, 0.5, 0.99):
        smoothed = run_module(page, "smoothing", f"module.smooth(argument, {weight})", values)
        expected = values if weight == 0 else compute_average(values, weight)
        assert [value is None for value in smoothed] == [value is None for value in values]
        known = [value for value in expected if value is not None]
        assert [value for value in smoothed if value is not None] == pytest.approx(known)
    ticks = run_module(page, "scale", "new module.LogScale(argument).listTicks()", [2e-5, None, 0, 0.03])
    assert ticks == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
    # Lightness grows along the scale, so that it is legible in grey too.
    colours = run_module(page, "scale", "[0, 0.25, 0.5, 0.75, 1].map(module.findColour)")
    lightness = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in colours]
    assert lightness == sorted(lightness)
    names = ["top.layers.0", "cross.u.0", "bottom.layers.10", "own", "cross.v.0", "bottom.layers.2"]
    words = run_module(page, "../job/layers", "module.listLayers(argument).map(({ words }) => words)", names)
    assert words == [
        *("bottom MLP, layer 3", "bottom MLP, layer 11", "cross layer 1, to low rank"),
        *("cross layer 1, from low rank", "top MLP, layer 1", "own"),
    ]


def test_ticks_of_huge_values_are_few_and_short_enough_for_their_axis(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/signin")
    formatted = run_module(page, "axes", "module.formatValues(null, argument, 0, 0, 5e19)", [0, 5e19, 1e20])
    assert formatted == ["0", "5e19", "1e20"]
    for low, high, expected in [
        (0.1, 1e20, ["0.1", "100", "100K", "100M", "100B", "100T", "1e17", "1e20"]),
        (1e-6, 0.1, ["1e-6", "1e-5", "1e-4", "0.001", "0.01", "0.1"]),
        (50, 2500, ["50", "100", "200", "500", "1K", "2K"]),
        (512, 2048, ["1K", "1.5K", "2K"]),
    ]:
        expression = "module.formatLogTicks(null, module.listLogTicks(null, 1, ...argument))"
        assert run_module(page, "axes", expression, [low, high]) == expected


@pytest.mark.slow
def test_noise_scale_ratios_shares_and_advice_are_drawn_where_they_were_measured(page: Page, site: Site) -> None:
    open_tab(page, site, "gradients", "measure_noise", "succeeded")
    expect(page.locator("#sentence")).to_have_text("Batches are useful up to about 32.")
    expect(page.locator("#empty")).to_be_hidden()
    legends = {"#noise-scale": ["noise scale", "batch"], "#shares": ["at gamma", "at 1"]}
    for figure, labels in legends.items():
        expect(page.locator(f"{figure} .chart")).to_have_attribute("data-points", "5")
        expect(page.locator(f"{figure} .u-series:not(.unlisted) .u-label")).to_have_text(["step", *labels])
    rows = page.locator("#advice tbody tr")
    assert [row.locator("td, th").all_inner_texts() for row in rows.all()][2:5] == [
        ["32", "1.32", "0.66", "1.94", "2.07", "largest useful"],
        ["64", "1.00", "1.00", "1.47", "3.13", "this run"],
        ["128", "0.84", "1.68", "1.23", "5.27", ""],
    ]
    chart = page.locator("#noise-scale .u-over")
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] - 1, "y": 5})
    expect(page.locator("#noise-scale .u-series:not(.unlisted) .u-value")).to_have_text(["5", "30 (24 to 39)", "64"])
    expect(page.locator("#shares .u-value").first).to_have_text("5")

    expect(page.locator("#gsnr .names span")).to_have_text(["bottom MLP, layer 1", "top MLP, layer 2"])
    heat_map = page.get_by_label("Heat map by layer and step")
    expect(heat_map).to_have_attribute("data-points", "5")
    spoken = page.locator("#gsnr [role=status]")
    heat_map.press("ArrowDown")
    expect(spoken).to_have_text("bottom MLP, layer 1 · step 5 · GSNR 0.03333, noise scale 30")
    heat_map.press("Home")
    expect(spoken).to_have_text(f"bottom MLP, layer 1 · step 1 · {UNKNOWN}")
    heat_map.press("ArrowDown")
    expect(spoken).to_have_text("top MLP, layer 2 · step 1 · GSNR 1e-5, noise scale 100,000")
    heat_map.hover(position={"x": 3, "y": 3})
    expect(page.locator("#gsnr .tip")).to_have_text(f"bottom MLP, layer 1 · step 1 · {UNKNOWN}")
    corner = "(map) => [...map.getContext('2d').getImageData(map.width - 2, 2, 1, 1).data]"
    # 1/30 on a scale from 0.00001 to 0.1.
    expected = run_module(page, "scale", "module.findColour(argument)", 0.8807)
    assert heat_map.evaluate(corner) == pytest.approx([*expected, 255], abs=2)
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("html")).to_have_js_property("scrollWidth", 390)


@pytest.mark.slow
def test_a_run_that_measures_nothing_says_which_setting_would(page: Page, site: Site) -> None:
    open_tab(page, site, "gradients", "succeed", "succeeded", moments=None)
    expect(page.locator("#empty")).to_contain_text("This run measures nothing of its gradients.")
    expect(page.locator("#empty")).to_contain_text("moments.every")
    for hidden in ("#noise-scale", "#gsnr", "#shares", "#advice", "#sentence"):
        expect(page.locator(hidden)).to_be_hidden()
