// Tab of the curves of a job. Steps that a new attempt has made void disappear, unless attempts are shown one by one.
import { byId } from "../common/elements.js";
import { isKnown } from "../common/format.js";
import { findPlannedEnd, hasEnded } from "../common/state.js";
import { showTrouble } from "../common/trouble.js";
import { ALL } from "../common/updates.js";
import { X } from "../charts/axes.js";
import { drawAttempts, drawWhole, summarise } from "../charts/drawn.js";
import { CHARTS, listFurtherCharts } from "../charts/list.js";
import { ChartPanel } from "../charts/panel.js";
import { Positions } from "../charts/positions.js";
import { Controls } from "./controls.js";
import { CurveData } from "../charts/curve_data.js";
import { path, startJob } from "./frame.js";

const SYNC = "curves";
const data = new CurveData(path);
const controls = new Controls(change);
const onZoom = (zoom) => controls.zoomTo(zoom);
let job = null;
let shownX = controls.x;
const panels = [];

/** Return the time at which the job began, in seconds since 1970. */
const findOrigin = () => Date.parse(job.started_at ?? job.created_at) / 1000;

/** Add panels for those of `charts` that have none yet, before a figure or at the end. */
function addPanels(charts, before = null) {
  const known = new Set(panels.map(({ definition }) => definition.name));
  for (const chart of charts.filter(({ name }) => !known.has(name))) {
    const panel = new ChartPanel(chart, { syncKey: SYNC, onZoom }, `${job.id}-${chart.name}`);
    panels.push(panel);
    byId("charts").insertBefore(panel.figure, before);
  }
}

/** Return where the charts end: at the end of the run if that is near, or else at the last point. */
function findEnd(origin) {
  const { x } = controls;
  const { training } = data.valid.whole;
  const numSteps = findPlannedEnd(job);
  const numSamples = numSteps && training.get("num_run_samples", "last").findLast(isKnown);
  const planned = { [X.step.name]: numSteps, [X.samples.name]: numSamples };
  return Math.max(planned[x.name] ?? 0, data.valid.findEnd(x, origin));
}

function draw(chart, origin) {
  const { x, smoothing, areEach } = controls;
  if (!areEach || data.starts.length < 2) {
    return drawWhole(chart, data.valid.get(chart.kind), data.valid.locate(chart.kind, x, origin), smoothing);
  }
  const attempts = data.attempts.map((source) => ({
    number: source.attempt,
    curves: source.get(chart.kind),
    positions: source.locate(chart.kind, x, origin),
    lastStep: data.findLastValidStep(source.attempt, chart.kind),
  }));
  return drawAttempts(chart, attempts, smoothing);
}

function show() {
  const { x, isLogarithmic, zoom } = controls;
  const origin = findOrigin();
  const positions = new Positions(data.valid.whole.training, x, origin);
  const end = findEnd(origin);
  const marks = data.starts.filter(({ attempt }) => attempt > 1).map(({ step }) => positions.find(step));
  const describe = (position) => (x === X.time ? x.format(position) : `${x.name} ${x.format(position)}`);
  for (const panel of panels) {
    const drawn = draw(panel.definition, origin);
    const sentence = drawn && summarise(panel.definition, drawn.data[0], drawn.main, describe);
    panel.show(drawn, end, marks.filter(isKnown), { x, isLogarithmic, range: zoom }, sentence);
  }
  controls.showAttempts(data.starts.length);
  byId("controls").hidden = !data.hasValues;
  byId("empty").hidden = data.hasValues;
}

/** Draw at once what is there, then read what a change of the controls needs. */
async function change(name) {
  if (!job) return;
  if (name === "x" && controls.zoom) {
    // The same steps, where they lie now.
    const origin = findOrigin();
    const [before, now] = [shownX, controls.x].map((x) => new Positions(data.valid.whole.training, x, origin));
    const zoom = controls.zoom.map((position) => now.find(before.findStep(position)));
    shownX = controls.x;
    controls.zoomTo(zoom.every(isKnown) && zoom[1] > zoom[0] ? zoom : null);
    return;
  }
  shownX = controls.x;
  const reading = name === "areEach" ? data.update(controls, findOrigin()) : data.readPart(controls, findOrigin());
  show();
  try {
    await reading;
    show();
  } catch (error) {
    showTrouble(error);
  }
}

function explainNothing() {
  if (hasEnded(job)) return "The job has ended without a step: its overview says why.";
  return job.num_attempts ? "They begin with the first step." : "The job has not been started: its overview says why it waits.";
}

async function update(now, changed) {
  job = now;
  byId("empty-reason").textContent = explainNothing();
  if (!changed.has(ALL) && !changed.has("curves")) return;
  addPanels(CHARTS);
  await data.update(controls, findOrigin());
  addPanels(listFurtherCharts(data.evaluationNames), byId("learning-rates"));
  show();
}

startJob({ update, names: ["curves"] });
