// Tab of the curves of a job. Steps that a new attempt has made void disappear.
import { byId } from "../common/elements.js";
import { isKnown } from "../common/format.js";
import { ALL } from "../common/updates.js";
import { Chart } from "../charts/chart.js";
import { Curves } from "../charts/curves.js";
import { path, startJob } from "./frame.js";

const AUC_LINES = [
  { name: "auc", label: "AUC", colour: "--good" },
  { name: "train_auc", label: "training rows", colour: "--accent" },
  { name: "best_possible_auc", label: "best possible", colour: "--muted", dash: [6, 4] },
];
const training = new Curves(path, "training", ["loss"]);
const evaluation = new Curves(path, "evaluation", AUC_LINES.map(({ name }) => name));
let lossChart = null;
let aucChart = null;

async function update(job, changed) {
  if (!changed.has(ALL) && !changed.has("curves")) return;
  await Promise.all([training.update(), evaluation.update()]);
  const { steps } = training.points;
  const { num_steps } = job.progress;
  if (steps.length) lossChart ??= new Chart(byId("loss-chart"), [{ label: "loss", colour: "--accent", hasBand: true }]);
  const band = ["max", "min"].map((statistic) => training.get("loss", statistic));
  lossChart?.show([steps, training.get("loss"), ...band], num_steps, training.marks);
  const lines = AUC_LINES.filter(({ name }) => name === "auc" || evaluation.get(name).some(isKnown));
  if (evaluation.points.steps.length) aucChart ??= new Chart(byId("auc-chart"), lines);
  aucChart?.show([evaluation.points.steps, ...lines.map(({ name }) => evaluation.get(name))], num_steps);
}

startJob({ update, names: ["curves"] });
