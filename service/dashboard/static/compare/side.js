// Some jobs side by side: judgement, settings, figures and curves, kept up to date while one of them runs.
import { get, isPassing } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { integer } from "../common/format.js";
import { hasEnded } from "../common/state.js";
import { sweepAddress, SWEEP_LABEL } from "../common/sweep_link.js";
import { showTrouble } from "../common/trouble.js";
import { Updates } from "../common/updates.js";
import { X } from "../charts/axes.js";
import { readSmoothing, SMOOTHING } from "../charts/smoothing.js";
import { getList, getParameter, isScatter, MAX_JOBS, setParameters, sideAddress } from "./address.js";
import { letterOf, makeCards } from "./cards.js";
import { assignColours } from "./colours.js";
import { saveCsv } from "../common/files.js";
import { drawCurves, makePanels, readCurves } from "./overlay.js";
import { Picker } from "./picker.js";
import { groupJobs, listCsvRows, showFigures, showSettings } from "./tables.js";
import { settingText } from "./words.js";

/** Differing settings that are told in a sentence. */
const MAX_TOLD = 4;
const MAX_SWEEPS = 12;
const REFRESH_MILLISECONDS = 10_000;
const AXES = ["step", "samples"];

let comparison = null;
let updates = null;
const panels = makePanels(zoomTo);

const getIds = () => getList("ids");

/** Show some other jobs; the address before can be returned to. */
function setIds(ids) {
  setParameters({ ids, from: "", to: "" }, { isStep: true });
  showSide();
}

const cards = makeCards(byId("compared"), {
  setBaseline: (id) => setIds([id, ...getIds().filter((other) => other !== id)]),
  remove: (id) => {
    setIds(getIds().filter((other) => other !== id));
    byId("add").focus();
  },
});

/** Read the comparison; a single job has nothing to be compared with yet. */
async function read(ids) {
  if (ids.length > 1) return get(`/v1/compare?ids=${ids.map(encodeURIComponent).join(",")}`);
  const job = await get(`/v1/jobs/${encodeURIComponent(ids[0])}`);
  const verdict = { sentence: "One job is chosen. Add a second one to compare it with.", basis: "", advice: "", best: null, is_certain: null };
  return { jobs: [{ ...job, group: 0, seed: job.spec.run.seed }], settings: [], figures: [], verdict };
}

/** Say in what the two judged groups differ, with both values; in what all differ if none are judged. */
function describeDifferences({ jobs, settings, verdict }) {
  if (groupJobs(jobs).length < 2) return "";
  const { best, other } = verdict;
  const isJudged = best !== null;
  const isOther = ({ values }) => !isJudged || JSON.stringify(values[best]) !== JSON.stringify(values[other]);
  const differing = settings.filter(isOther);
  const who = isJudged ? `${letterOf(best)} and ${letterOf(other)}` : "The jobs";
  if (!differing.length) return `${who} differ in no setting: they have other labels, or repeat a seed.`;
  const shown = differing.slice(0, MAX_TOLD).map(({ field, values }) =>
    isJudged ? `${field} (${settingText(values[best])} and ${settingText(values[other])})` : field);
  const more = differing.length > MAX_TOLD ? ` and ${differing.length - MAX_TOLD} more` : "";
  return `${who} differ in ${differing.length === 1 ? "one setting" : `${differing.length} settings`}: ${shown.join(", ")}${more}.`;
}

function showVerdict() {
  const { verdict } = comparison;
  byId("verdict").dataset.certainty = { true: "certain", false: "open" }[verdict.is_certain] ?? "unknown";
  const texts = [["sentence", verdict.sentence], ["basis", verdict.basis], ["advice", verdict.advice], ["differs", describeDifferences(comparison)]];
  for (const [id, text] of texts) {
    // A status that is set again is read out again.
    if (byId(id).textContent !== text) byId(id).textContent = text;
    byId(id).hidden = !text;
  }
}

/** Return what the address says of the curves: {x, smoothing, zoom}. */
function getView() {
  // Steps of batches of other sizes are not of one length.
  const areStepsEqual = comparison.settings.every(({ field }) => !field.startsWith("batch."));
  const axis = AXES.includes(getParameter("axis")) ? getParameter("axis") : areStepsEqual ? "step" : "samples";
  const [start, end] = ["from", "to"].map((name) => Number(getParameter(name)));
  return { x: X[axis], smoothing: readSmoothing(getParameter("smoothing") || null), zoom: start >= 0 && end > start ? [start, end] : null };
}

/** See a part of all charts; null for all of it. */
function zoomTo(zoom) {
  const [from, to] = zoom?.map((position) => Number(position.toPrecision(9))) ?? ["", ""];
  changeView({ from, to });
}

/** Draw at once what is there, then what a change of the address needs. */
async function changeView(parameters) {
  setParameters(parameters);
  showCurves();
  try {
    await readCurves(comparison.jobs, getView());
    showCurves();
  } catch (error) {
    showTrouble(error);
  }
}

function showCurves() {
  const { jobs } = comparison;
  const view = getView();
  const { x, smoothing, zoom } = view;
  byId("axis").value = x.name;
  byId("smoothing").value = smoothing;
  byId("smoothing-value").textContent = smoothing.toFixed(2);
  byId("zoom").hidden = zoom === null;
  if (zoom) byId("zoom-range").textContent = `${x.plural} ${zoom.map(x.format).join(" to ")}`;
  const names = jobs.map((job) => job.name);
  const name = (job) => {
    const isShared = names.filter((other) => other === job.name).length > 1;
    return `${letterOf(job.group)} ${job.name}${isShared ? `, seed ${job.seed}` : ""}`;
  };
  drawCurves(panels, jobs, name, view);
  byId("curves").hidden = panels.every(({ figure }) => figure.hidden);
}

function showComparison() {
  assignColours(comparison.jobs.map((job) => job.id));
  showVerdict();
  cards.show(comparison.jobs);
  showSettings(byId("settings").querySelector("table"), comparison);
  showFigures(byId("figures").querySelector("table"), comparison);
  byId("settings").hidden = comparison.settings.length === 0;
  byId("figures").hidden = comparison.figures.length === 0;
  byId("csv").hidden = comparison.jobs.length < 2;
  byId("verdict").hidden = false;
  const sweeps = new Set(comparison.jobs.map((job) => job.labels[SWEEP_LABEL]));
  const [sweep] = sweeps;
  byId("tab-many").href = sweeps.size === 1 && sweep !== undefined ? sweepAddress(sweep) : "/compare?view=scatter";
}

/** Say why the jobs of the address cannot be shown, and offer the addresses that can. */
function showProblem(sentence, ...links) {
  byId("problem").replaceChildren(element("p", {}, sentence), ...links.map(([text, ids]) => element("p", {}, element("a", { href: sideAddress(ids) }, text))));
  byId("problem").hidden = false;
}

function showRefusal(error, ids) {
  const bad = ids.find((id) => error.message.includes(id));
  const reason = error.status === 404 ? `${error.message}: it was deleted, belongs to another owner, or its id has an error.` : error.message;
  const rest = ids.filter((id) => id !== bad);
  showProblem(`The jobs cannot be compared: ${reason}`, ...(bad && rest.length ? [["Compare the others without it", rest]] : []));
  showParts(false);
}

function showParts(areShown) {
  byId("summary").hidden = !areShown;
  byId("details").hidden = !areShown;
}

/** Read and show everything; return whether a job still runs. */
async function update() {
  const ids = getIds();
  if (isScatter() || !ids.length || ids.length > MAX_JOBS) return false;
  // Those of a later address come next.
  const areOld = () => ids.join() !== getIds().join();
  try {
    const found = await read(ids);
    if (areOld()) return true;
    comparison = found;
    byId("problem").hidden = true;
    showParts(true);
    showComparison();
    await readCurves(found.jobs, getView());
    if (areOld()) return true;
    showCurves();
    return !found.jobs.every(hasEnded);
  } catch (error) {
    if (areOld()) return true;
    if (isPassing(error)) throw error;
    showRefusal(error, ids);
    return false;
  }
}

/** Show the jobs of the address side by side; without any, how to choose them. */
export function showSide() {
  const ids = getIds();
  byId("problem").hidden = true;
  byId("empty").hidden = ids.length > 0;
  showParts(false);
  byId("csv").hidden = true;
  byId("picker").hidden = ids.length >= MAX_JOBS;
  byId("full").hidden = ids.length !== MAX_JOBS;
  if (ids.length > MAX_JOBS) {
    const words = `This page compares up to ${MAX_JOBS} jobs, since more colours cannot be told apart; the address has ${ids.length}.`;
    const rest = "GET /v1/compare and dlrm compare take up to 20, and a scatter shows up to 1,000.";
    showProblem(`${words} ${rest}`, [`Compare the first ${MAX_JOBS}`, ids.slice(0, MAX_JOBS)]);
  } else if (ids.length) {
    // What is known of the jobs stays until the answer comes.
    showParts(comparison !== null);
    updates.restart();
  } else {
    comparison = null;
    // Without them the page is as useful.
    offerSweeps().catch(() => {});
  }
}

/** Offer the sweeps that there are. */
async function offerSweeps() {
  const { items } = await get(`/v1/labels?name=${SWEEP_LABEL}&limit=${MAX_SWEEPS}`);
  const links = items.flatMap(({ value, num_jobs: count }) => [element("a", { href: sweepAddress(value) }, value), ` (${integer(count)}) `]);
  byId("sweeps").replaceChildren("Sweeps: ", ...links);
  byId("sweeps").hidden = items.length === 0;
}

/** Prepare the parts of the page that compare some jobs. */
export function startSide() {
  byId("charts").append(...panels.map(({ figure }) => figure));
  updates = new Updates(update, null, REFRESH_MILLISECONDS);
  byId("axis").addEventListener("change", ({ target }) => changeView({ axis: target.value, from: "", to: "" }));
  byId("smoothing").addEventListener("input", ({ target }) => changeView({ smoothing: Number(target.value) === SMOOTHING ? "" : target.value }));
  byId("reset").addEventListener("click", () => zoomTo(null));
  byId("csv").addEventListener("click", () => saveCsv("comparison.csv", listCsvRows(comparison)));
  new Picker(byId("add"), byId("found"), {
    choose: (id) => setIds([...getIds(), id]),
    isLeftOut: (id) => getIds().includes(id),
  });
}
