// Many jobs as points: any setting against any figure, coloured by another one, with means over seeds.
import { get } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { count, integer, isKnown } from "../common/format.js";
import { SWEEP_LABEL } from "../common/sweep_link.js";
import { getList, getParameter, MAX_JOBS, setParameters, sideAddress } from "./address.js";
import { makeAxis } from "./axes.js";
import { saveCsv } from "../common/files.js";
import { makePalette } from "./palette.js";
import { Plot } from "./plot.js";
import { Rows } from "./rows.js";
import { chooseX, chooseY, describeColumns, isSeed } from "./values.js";
import { valueText } from "./words.js";

const NUM_BEST = 8;
/** Settings that are told of the best jobs. */
const NUM_TOLD = 3;
/** Beginning of the title of the best values, and what is least for the best one, by which values are better. */
const BEST = {
  higher: ["Highest", (value) => -value],
  lower: ["Lowest", (value) => value],
  "nearer to 1": ["Nearest to 1:", (value) => Math.abs(value - 1)],
};
let results = null;
let columns = [];
let rows = null;
let plot = null;
let turn = 0;

const findColumn = (key) => columns.find((column) => column.key === key);
const getY = () => findColumn(getParameter("y")) ?? chooseY(columns);
const getX = () => findColumn(getParameter("x")) ?? chooseX(columns, getY());
/** Column of the seed; undefined if it is the same in all jobs. */
const getSeed = () => columns.find(isSeed);
const getChosen = () => getList("chosen");

/** Choose a job for the comparison, or take it back. */
function choose(id) {
  const chosen = getChosen();
  if (!chosen.includes(id) && chosen.length >= MAX_JOBS) return;
  setParameters({ chosen: chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen, id] });
  showChosen();
  rows.updateBoxes(getChosen());
  showPlot();
}

function showChosen() {
  const chosen = getChosen();
  const link = byId("compare-chosen");
  link.hidden = chosen.length < 2;
  link.textContent = `Compare ${chosen.length} jobs side by side`;
  link.href = sideAddress(chosen);
  byId("tab-side").href = link.href;
  byId("chosen-hint").textContent = chosen.length >= MAX_JOBS ? `${MAX_JOBS} jobs are chosen, as many as fit side by side.` : `Choose 2 to ${MAX_JOBS} jobs with the boxes of the table, or with the space bar in the chart, to compare them side by side.`;
}

/** Fill a choice of columns. */
function fillChoice(select, chosen, first = []) {
  const kinds = [["Settings", "setting"], ["Labels", "label"], ["Figures", "figure"]];
  const groups = kinds.map(([title, kind]) => {
    const options = columns.filter((column) => column.kind === kind).map(({ key, title: text }) => element("option", { value: key }, text));
    return options.length ? element("optgroup", { label: title }, ...options) : "";
  });
  select.replaceChildren(...first, ...groups);
  select.value = chosen;
}

/** Describe a job by the values that the chart shows of it. */
function describe(index, shown) {
  return [results.names[index], ...shown.map((column) => `${column.title} ${valueText(column, column.values[index])}`)].join(", ");
}

/** List the means over seeds of the vertical axis, each at the place of its jobs. */
function listMeans(x, y, colourOf) {
  if (!y.means?.length || isSeed(x)) return [];
  return y.means.map(({ group, mean, low, high, num_jobs: count }) => {
    const members = results.groups.flatMap((own, index) => (own === group && isKnown(y.values[index]) ? [index] : []));
    const numbers = members.map((index) => x.numbers[index]);
    const place = x.isNumeric ? numbers.reduce((sum, number) => sum + number, 0) / count : x.values[members[0]];
    const text = (value) => valueText(y, value);
    return { x: place, y: mean, low, high, colour: colourOf(members[0]), label: `mean over ${count} seeds ${text(mean)}, 95 % interval ${text(low)} to ${text(high)}` };
  });
}

function showPlot() {
  const [x, y] = [getX(), getY()];
  const colour = findColumn(getParameter("colour")) ?? null;
  const palette = makePalette(colour);
  const shown = [...new Set([y, x, colour, getSeed()].filter(Boolean))];
  const chosen = getChosen();
  // A mean over seeds has the colour of none.
  const means = listMeans(x, y, colour && isSeed(colour) ? () => "var(--text)" : palette.colourOf);
  const points = results.ids.map((id, index) => ({
    id,
    index,
    label: describe(index, shown),
    x: x.values[index],
    y: y.values[index],
    colour: palette.colourOf(index),
    isChosen: chosen.includes(id),
  }));
  const yAxis = makeAxis(y, means.flatMap(({ low, high }) => [low, high]));
  plot.show({ xAxis: makeAxis(x), yAxis, xTitle: x.title, yTitle: y.title, points, means });
  byId("scatter").classList.toggle("has-means", means.length > 0);
  byId("means-hint").hidden = means.length === 0;
  palette.showLegend(byId("legend"));
  const missing = points.filter((point) => !isKnown(point.x) || !isKnown(point.y)).length;
  byId("missing").hidden = missing === 0;
  const reason = y.kind === "figure" || x.kind === "figure" ? " Only jobs that have succeeded have figures." : "";
  byId("missing").textContent = `${integer(missing)} of ${integer(points.length)} jobs are not in the chart: they lack ${y.title} or ${x.title}.${reason}`;
  showBest(x, y);
}

/** List the jobs with the best values, beside the chart: the highest ones if none are better. */
function showBest(x, y) {
  const shortTitle = (column) => column.title.split(".").at(-1);
  const order = results.ids.map((id, index) => index).filter((index) => isKnown(y.numbers[index]));
  const [title, getBadness] = BEST[y.better] ?? BEST.higher;
  order.sort((one, other) => getBadness(y.numbers[one]) - getBadness(y.numbers[other]));
  const settings = columns.filter((column) => column.kind === "setting" && column !== x && !isSeed(column));
  const first = [x, ...settings.sort((one, other) => other.distinct - one.distinct)].slice(0, NUM_TOLD);
  const told = [...new Set([...first, getSeed()].filter(Boolean))];
  byId("best-title").textContent = `${title} ${y.title}`;
  byId("best").replaceChildren(...order.slice(0, NUM_BEST).map((index) => {
    const link = element("a", { href: `/jobs/${encodeURIComponent(results.ids[index])}` }, results.names[index]);
    const settings = told.map((column) => `${shortTitle(column)} ${valueText(column, column.values[index])}`);
    return element("li", {}, element("strong", {}, valueText(y, y.values[index])), " ", link, element("small", {}, settings.join(" · ")));
  }));
}

/** Show the job under the pointer or the focus. */
function look(point) {
  byId("looked").textContent = point ? point.label : "Point at a job, or go from one to the next with arrow keys. A click opens it.";
}

function showRows() {
  const sort = getParameter("sort");
  const isDescending = getParameter("order") ? getParameter("order") === "desc" : !sort && getY().better !== "lower";
  rows.show(results, columns, { key: sort || getY().key, isDescending }, getChosen());
}

function showAll() {
  const isEmpty = results.ids.length === 0;
  const cannotDraw = columns.length < 2;
  byId("none").hidden = !isEmpty;
  byId("results").hidden = isEmpty;
  byId("chart-part").hidden = cannotDraw;
  byId("csv-many").hidden = isEmpty;
  if (isEmpty) {
    byId("count").textContent = "";
    return;
  }
  const equal = `${integer(results.num_equal_settings)} settings are the same in all of them and left out`;
  const cut = results.num_left_out ? `; so are ${integer(results.num_left_out)} that differ, of more than fit` : "";
  const older = results.has_more ? " These are the newest; more jobs match." : "";
  byId("count").textContent = `${count(results.ids.length, "job")}; ${equal}${cut}.${older}`;
  if (!cannotDraw) {
    fillChoice(byId("x"), getX().key);
    fillChoice(byId("y"), getY().key);
    fillChoice(byId("colour"), findColumn(getParameter("colour"))?.key ?? "", [element("option", { value: "" }, "one colour")]);
    showPlot();
    look(null);
  }
  byId("report-hint").hidden = !getParameter("label").startsWith(`${SWEEP_LABEL}:`);
  showChosen();
  showRows();
}

/** Read the jobs of the address and show them as points and rows. */
export async function showMany() {
  turn += 1;
  const mine = turn;
  byId("label").value = getParameter("label");
  byId("q").value = getParameter("q");
  const query = new URLSearchParams();
  for (const name of ["label", "q"]) if (getParameter(name)) query.set(name, getParameter(name));
  byId("count").textContent = "Reading the jobs…";
  try {
    const found = await get(`/v1/results?${query}`);
    if (mine !== turn) return;
    results = found;
    byId("trouble").hidden = true;
  } catch (error) {
    if (mine !== turn) return;
    byId("trouble").hidden = false;
    for (const id of ["results", "none", "csv-many"]) byId(id).hidden = true;
    byId("count").textContent = "";
    byId("trouble").textContent = error.errors?.[0] ? `${error.errors[0].message}; valid: ${error.errors[0].valid}` : error.message;
    return;
  }
  columns = describeColumns(results.columns);
  showAll();
}

function saveTable() {
  const head = ["id", "name", "owner", "state", ...columns.map((column) => column.key)];
  saveCsv("jobs.csv", [head, ...results.ids.map((id, index) => [id, results.names[index], results.owners[index], results.states[index], ...columns.map((column) => column.values[index])])]);
}

/** Prepare the parts of the page that show many jobs. */
export function startMany() {
  plot = new Plot(byId("scatter"), { look, choose });
  rows = new Rows(byId("results").querySelector("table"), byId("all-rows"), {
    choose,
    isFull: () => getChosen().length >= MAX_JOBS,
    sort(key, isDescending) {
      setParameters({ sort: key, order: isDescending ? "desc" : "asc" });
      showRows();
    },
  });
  for (const name of ["x", "y", "colour"]) {
    byId(name).addEventListener("change", ({ target }) => {
      setParameters({ [name]: target.value });
      showPlot();
    });
  }
  byId("match").addEventListener("submit", (event) => {
    event.preventDefault();
    // Job documents write "name = value".
    const label = byId("label").value.trim().replace(/^([^:=]*?)\s*=\s*/, "$1:");
    setParameters({ label, q: byId("q").value.trim(), view: "scatter", chosen: "" }, { isStep: true });
    showMany();
  });
  byId("csv-many").addEventListener("click", saveTable);
  byId("label").addEventListener("focus", () => offerLabels().catch(() => {}), { once: true });
}

/** Offer the labels of jobs, most frequent first, while one is typed. */
async function offerLabels() {
  const { items } = await get("/v1/labels?limit=1000");
  const frequent = items.filter((item) => item.num_jobs > 1).sort((one, other) => other.num_jobs - one.num_jobs).slice(0, 100);
  byId("labels").replaceChildren(...frequent.map(({ name, value, num_jobs: count }) => element("option", { value: `${name}:${value}` }, `${integer(count)} jobs`)));
}
