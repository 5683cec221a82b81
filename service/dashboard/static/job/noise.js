// Charts of the gradient's noise: scale against the batch, ratio by layer, and factors of variance reduction.
import { X } from "../charts/axes.js";
import { summarise } from "../charts/drawn.js";
import { makeChoicesOfMap } from "../charts/heatmap_files.js";
import { HeatMap } from "../charts/heatmap.js";
import { ChartPanel, makeMenu } from "../charts/panel.js";
import { figure, isKnown, samples } from "../common/format.js";
import { findPlannedEnd } from "../common/state.js";
import { findBatch } from "../plan/batch.js";
import { listLayers } from "./layers.js";

const GSNR = "gsnr.";
export const NOISE_NAMES = ["noise_scale", "global_size", "share_at_gamma", "share_at_one", "gsnr"];
const DASH = [6, 4];
const SYNC = "gradients";
/** Part of the run at whose end an interval is shown. */
const INTERVAL_FRACTION = 0.1;
const SCALE = {
  name: "noise-scale",
  title: "Noise scale",
  note: "against the batch; at the end of the run with its 95 % interval",
  unit: "samples",
  format: samples,
  lines: [
    { name: "noise_scale", label: "noise scale", colour: "--accent", hasBand: true },
    { label: "batch", colour: "--muted", dash: DASH },
  ],
};
const SHARES = {
  name: "shares",
  title: "Variance reduction",
  note:
    "multiplies each element of the gradient by a factor from gamma to 1. Share of the elements that are damped most, at " +
    "gamma, since they are mostly noise; and of those that are left as they are, at 1",
  unit: "share of elements",
  format: figure,
  lines: [
    { name: "share_at_gamma", label: "at gamma", colour: "--accent" },
    { name: "share_at_one", label: "at 1", colour: "--good" },
  ],
};
const describe = (step) => `step ${X.step.format(step)}`;
const describeRatio = (value) => `GSNR ${figure(value)}${value > 0 ? `, noise scale ${samples(1 / value)}` : ""}`;

/** Make the largest and smallest values around the end of a curve of so many points, from an interval [low, high]. */
function makeEdges(interval, numPoints) {
  const first = numPoints - Math.max(2, Math.ceil(INTERVAL_FRACTION * numPoints));
  return [interval[1], interval[0]].map((edge) => Array.from({ length: numPoints }, (none, index) => (index >= first ? edge : null)));
}

/** Charts that appear with their first value; a run that measures no noise shows none. */
export class NoiseCharts {
  /** charts: element with the figure `gsnr` in it, before which others are put. fileName: beginning of names of files. */
  constructor(charts, fileName) {
    const make = (definition, options) => new ChartPanel(definition, { syncKey: SYNC, ...options }, `${fileName}-${definition.name}`);
    this.scale = make(SCALE, { isLogarithmic: true });
    this.shares = make(SHARES, {});
    charts.prepend(this.scale.figure);
    this.map = charts.querySelector("#gsnr");
    this.map.after(this.shares.figure);
    this.heatMap = null;
    this.fileName = fileName;
  }

  /** training: curves of the job's steps. interval: [low, high] of the noise scale, or null. Return whether there is any. */
  show(training, job, interval) {
    const { steps } = training.points;
    const batch = findBatch(job);
    const noise = training.get("noise_scale");
    const sizes = training.get("global_size", "last").map((size) => size ?? batch);
    const edges = makeEdges(interval ?? [null, null], steps.length);
    this.#show(this.scale, training, job, [steps, noise, sizes, ...edges], noise);
    const shares = SHARES.lines.map(({ name }) => training.get(name));
    this.#show(this.shares, training, job, [steps, ...shares], shares[0]);
    return this.#showRatios(training, job) || [noise, ...shares].some((values) => values.some(isKnown));
  }

  #show(panel, training, job, data, main) {
    const { lines } = panel.definition;
    const drawn = main.some(isKnown) ? { lines, data } : null;
    const sentence = summarise(panel.definition, data[0], main, describe);
    panel.show(drawn, findPlannedEnd(job), training.marks, {}, sentence);
  }

  #showRatios(training, job) {
    const names = Object.keys(training.points.curves).filter((name) => name.startsWith(GSNR));
    const layers = listLayers(names.map((name) => name.slice(GSNR.length)));
    const rows = layers.map(({ name, words }) => ({ name: words, values: training.get(`${GSNR}${name}`) }));
    if (!rows.some(({ values }) => values.some(isKnown))) return false;
    this.map.hidden = false;
    if (this.heatMap === null) {
      this.heatMap = new HeatMap(this.map.querySelector(".map"), describeRatio);
      this.map.querySelector("figcaption").append(makeMenu("GSNR", makeChoicesOfMap(this.heatMap, "GSNR", `${this.fileName}-gsnr`)));
    }
    this.heatMap.show(rows, training.points.steps, findPlannedEnd(job));
    return true;
  }
}
