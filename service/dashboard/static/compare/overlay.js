// Curves of several jobs in one chart: the loss, smoothed, and the AUC, by step or by samples.
import { get } from "../common/api.js";
import { element } from "../common/elements.js";
import { X } from "../charts/axes.js";
import { Chart, join } from "../charts/chart.js";
import { smooth } from "../charts/smoothing.js";
import { getColourName } from "./colours.js";

const RESOLUTION = 400;
const AT_ONCE = 2;
/** Curves by job: {steps, loss, samples, evaluatedSteps, auc}, and how far the job was when they were read. */
const curves = new Map();

const describeAge = ({ state, progress }) => `${state} ${progress.step} ${progress.auc}`;

const valuesOf = ({ steps, curves: own }, name, statistic) =>
  own[name]?.[statistic] ?? own[name]?.last ?? steps.map(() => null);

async function read(job) {
  const { id } = job;
  const { training, evaluation } = await get(
    `/v1/jobs/${encodeURIComponent(id)}/curves?names=loss,num_samples,auc&resolution=${RESOLUTION}`,
  );
  curves.set(id, {
    age: describeAge(job),
    steps: training.steps,
    loss: valuesOf(training, "loss", "mean"),
    samples: valuesOf(training, "num_samples", "last"),
    evaluatedSteps: evaluation.steps,
    auc: valuesOf(evaluation, "auc", "last"),
  });
}

/** Read the curves of jobs that are not known yet, or have grown since; few at a time. */
export async function readCurves(jobs) {
  const left = jobs.filter((job) => curves.get(job.id)?.age !== describeAge(job));
  const work = async () => {
    while (left.length) await read(left.shift());
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/** Return the samples consumed up to a step, between two known steps in proportion. */
function samplesAt(step, { steps, samples }) {
  const next = steps.findIndex((known) => known >= step);
  if (next < 0) return steps.length ? (step / steps.at(-1)) * samples.at(-1) : null;
  const [lowStep, low] = next > 0 ? [steps[next - 1], samples[next - 1]] : [0, 0];
  return low + ((samples[next] - low) * (step - lowStep)) / (steps[next] - lowStep);
}

/** Return the points of one curve of a job, as [xs, ys]. */
function listPoints(curve, kind, { bySamples, weight }) {
  const isLoss = kind === "loss";
  const steps = isLoss ? curve.steps : curve.evaluatedSteps;
  const xs = bySamples ? steps.map((step) => samplesAt(step, curve)) : steps;
  return [xs, isLoss ? smooth(curve.loss, weight) : curve.auc];
}

/** Chart of one curve of several jobs; made anew if they are others. */
export class Overlay {
  /** figure: the element around the chart. kind: "loss" or "auc". */
  constructor(figure, kind) {
    this.figure = figure;
    this.kind = kind;
    this.key = "";
    this.chart = null;
  }

  /** Show the curves of jobs. name: function that names a job in the legend. options: {bySamples, weight}. */
  show(jobs, name, options) {
    const drawn = jobs.filter((job) => {
      const curve = curves.get(job.id);
      return curve && (this.kind === "loss" ? curve.steps : curve.evaluatedSteps).length > 0;
    });
    this.figure.hidden = drawn.length === 0;
    if (!drawn.length) return;
    const key = JSON.stringify([options.bySamples, drawn.map((job) => [job.id, name(job)])]);
    if (key !== this.key) this.#remake(drawn, name);
    this.key = key;
    const points = drawn.map((job) => listPoints(curves.get(job.id), this.kind, options));
    this.chart.change({ x: options.bySamples ? X.samples : X.step });
    this.figure.querySelector(".over").textContent = options.bySamples ? "over samples" : "over steps";
    this.chart.show(join(points), 0);
  }

  #remake(jobs, name) {
    const target = element("div", { class: "chart" });
    this.figure.querySelector(".chart").replaceWith(target);
    this.chart = new Chart(target, jobs.map((job) => ({ label: name(job), colour: getColourName(job.id) })));
  }
}
