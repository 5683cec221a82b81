// Curves of several jobs in one chart: the loss and the AUC, by step or by samples.
import { join } from "../charts/chart.js";
import { summarise } from "../charts/drawn.js";
import { CHARTS } from "../charts/list.js";
import { ChartPanel } from "../charts/panel.js";
import { smooth } from "../charts/smoothing.js";
import { Source } from "../charts/curve_data.js";
import { getColourName } from "./colours.js";

const NAMES = { training: ["loss", "num_samples"], evaluation: ["auc"] };
/** Curves by job, and how far the job was when they were read. */
const known = new Map();

/** Make the charts. onZoom: called with the chosen [start, end] along them, or with null. */
export const makePanels = (onZoom) =>
  CHARTS.filter(({ name }) => ["loss", "auc"].includes(name)).map((chart) => new ChartPanel(chart, { onZoom }, `comparison-${chart.name}`));

/** Read the curves of jobs that are not known yet, or have grown since, and the part that is seen; one job at a time. */
export async function readCurves(jobs, { x, zoom }) {
  for (const { id, state, progress } of jobs) {
    const age = `${state} ${progress.step} ${progress.auc}`;
    if (!known.has(id)) known.set(id, { source: new Source(`/v1/jobs/${encodeURIComponent(id)}`, null, NAMES) });
    const own = known.get(id);
    if (own.age !== age) await own.source.update();
    own.age = age;
    await own.source.updatePart(zoom, x, 0);
  }
}

/** Draw one curve of a job: its own values, faint behind the smoothed ones. */
function drawJob({ kind, lines: [{ name, isSmoothed }] }, source, { label, colour }, { x, smoothing }) {
  const values = source.get(kind).get(name);
  const lines = [{ label, colour }];
  const data = [source.locate(kind, x, 0), values];
  if (isSmoothed && smoothing > 0) {
    Object.assign(lines[0], { isFaint: true, isUnlisted: true });
    lines.push({ label: `${label}, smoothed`, colour });
    data.push(smooth(values, smoothing));
  }
  return { lines, data };
}

/** Draw the curves of jobs that are known. name: function that names a job in the legend. view: {x, smoothing, zoom},
 * with `x` one of `X` and `zoom` as `onZoom` is given it. */
export function drawCurves(panels, jobs, name, view) {
  const { x, zoom } = view;
  const end = Math.max(0, ...jobs.map(({ id }) => known.get(id)?.source.findEnd(x, 0) ?? 0));
  const describe = (position) => `${x.name} ${x.format(position)}`;
  for (const panel of panels) {
    const { definition } = panel;
    const sources = jobs.map((job) => [job, known.get(job.id)?.source]).filter(([, source]) => source?.get(definition.kind).points.steps.length > 0);
    const parts = sources.map(([job, source]) => drawJob(definition, source, { label: name(job), colour: getColourName(job.id) }, view));
    const sentence = parts.map(({ lines, data }) => summarise({ ...definition, title: lines[0].label }, data[0], data[1], describe)).join(" ");
    const drawn = parts.length ? { lines: parts.flatMap(({ lines }) => lines), data: join(parts.map(({ data }) => data)) } : null;
    panel.show(drawn, end, [], { x, range: zoom }, sentence);
  }
}
