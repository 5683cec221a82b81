// Curves of several jobs in one chart: the loss, smoothed, and the AUC, by step or by samples.
import { join } from "../charts/chart.js";
import { Curves } from "../charts/curves.js";
import { summarise } from "../charts/drawn.js";
import { CHARTS } from "../charts/list.js";
import { ChartPanel } from "../charts/panel.js";
import { Positions } from "../charts/positions.js";
import { smooth } from "../charts/smoothing.js";
import { getColourName } from "./colours.js";

/** Curves by job: {training, evaluation}, and how far the job was when they were read. */
const known = new Map();

export const panels = CHARTS.filter(({ name }) => ["loss", "auc"].includes(name)).map((chart) => new ChartPanel(chart, {}, `comparison-${chart.name}`));

function makeCurves(id) {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  return { training: new Curves(path, "training", ["loss", "num_samples"]), evaluation: new Curves(path, "evaluation", ["auc"]) };
}

/** Read the curves of jobs that are not known yet, or have grown since; one job at a time. */
export async function readCurves(jobs) {
  for (const { id, state, progress } of jobs) {
    const age = `${state} ${progress.step} ${progress.auc}`;
    if (!known.has(id)) known.set(id, makeCurves(id));
    const own = known.get(id);
    if (own.age === age) continue;
    await Promise.all([own.training.update(), own.evaluation.update()]);
    own.age = age;
  }
}

/** Draw the curves of jobs that are known. name: function that names a job in the legend. x: one of `X`. */
export function drawCurves(jobs, name, { x, weight }) {
  const describe = (position) => `${x.name} ${x.format(position)}`;
  for (const panel of panels) {
    const { definition } = panel;
    const [{ name: curve, isSmoothed }] = definition.lines;
    const drawn = jobs.filter(({ id }) => known.get(id)?.[definition.kind].points.steps.length > 0);
    const lines = drawn.map((job) => ({ label: name(job), colour: getColourName(job.id) }));
    const parts = drawn.map(({ id }) => {
      const { training, [definition.kind]: curves } = known.get(id);
      const values = curves.get(curve);
      return [new Positions(training, x, 0).locate(curves), isSmoothed ? smooth(values, weight) : values];
    });
    const sentence = parts.map((part, index) => summarise({ ...definition, title: lines[index].label }, ...part, describe)).join(" ");
    panel.show(parts.length ? { lines, data: join(parts) } : null, 0, [], { x }, sentence);
  }
}
