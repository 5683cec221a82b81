// Charts of the gradient's noise: scale against the batch, ratio by layer, and factors of variance reduction.
import { Chart } from "../charts/chart.js";
import { figure, isKnown, samples } from "../common/format.js";
import { findBatch } from "../plan/batch.js";

const GSNR = "gsnr.";
export const NOISE_NAMES = ["noise_scale", "global_size", "share_at_gamma", "share_at_one", "gsnr"];
const NUM_COLOURS = 8;
const DASH = [6, 4];
const SCALE = [
  { label: "noise scale", colour: "--accent" },
  { label: "batch", colour: "--muted", dash: DASH, isReference: true },
];
const SHARES = [{ label: "at gamma", colour: "--accent" }, { label: "at 1", colour: "--good" }];

const makeLayerLine = (layer, index) => ({
  label: layer,
  colour: `--series-${1 + (index % NUM_COLOURS)}`,
  dash: index < NUM_COLOURS ? undefined : DASH,
});

/** Charts that appear with their first value; a run that measures no noise shows none. */
export class NoiseCharts {
  /** figures: {scale, ratios, shares}, hidden <figure>s with a .chart in each. */
  constructor(figures) {
    this.figures = figures;
    this.charts = {};
  }

  /** training: curves of the job's steps. marks: steps from which an attempt continued. */
  show(training, job, marks) {
    const batch = findBatch(job);
    const layers = Object.keys(training.points.curves).filter((name) => name.startsWith(GSNR));
    const draw = (name, lines, options, curves) => {
      const hasValues = curves.some((curve, index) => !lines[index].isReference && curve.some(isKnown));
      if (!this.charts[name] && !hasValues) return;
      this.figures[name].hidden = false;
      this.charts[name] ??= new Chart(this.figures[name].querySelector(".chart"), lines, options);
      this.charts[name].show([training.points.steps, ...curves], job.progress.num_steps, marks);
    };
    draw("scale", SCALE, { isLogarithmic: true, format: samples }, [
      training.get("noise_scale"),
      training.get("global_size", "last").map((size) => size ?? batch),
    ]);
    draw(
      "ratios",
      layers.map((name, index) => makeLayerLine(name.slice(GSNR.length), index)),
      { isLogarithmic: true, format: figure },
      layers.map((name) => training.get(name)),
    );
    const shares = ["share_at_gamma", "share_at_one"].map((name) => training.get(name));
    draw("shares", SHARES, { format: figure }, shares);
  }
}
