// The charts of a job: what each shows, in words, and from which curves.
import { figure, integer, listRanked, rate } from "../common/format.js";
import { listOfTasks } from "../common/tasks.js";

const DASH = [6, 4];
const NUM_COLOURS = 8;
const RIGHT = { value: 1, label: "right", colour: "--muted", dash: DASH };
const DEFAULTS = { format: figure, unit: "", best: null };

/**
 * Charts in their order: kind of curves, and lines as `Chart` takes them. The first line of a chart is its own; the others
 * are there to compare with. `name`: curve of a line. `value`: of a line that is the same everywhere. `isSmoothed`: whether
 * the line is noisy enough to be smoothed. `unit`: of all
 * lines. `best`: which value is the best one.
 */
export const CHARTS = [
  {
    name: "loss",
    title: "Loss",
    note: "on the training rows of each step",
    kind: "training",
    best: "lowest",
    lines: [{ name: "loss", label: "loss", colour: "--accent", isSmoothed: true, hasBand: true }],
  },
  {
    name: "auc",
    title: "AUC",
    note: "on rows kept for evaluation; 0.5 is a guess, 1 is perfect",
    kind: "evaluation",
    best: "highest",
    lines: [
      { name: "auc", label: "AUC", colour: "--good" },
      { name: "validation_auc", label: "validation rows", colour: "--series-2" },
      { name: "train_auc", label: "training rows", colour: "--accent" },
      { name: "best_possible_auc", label: "best possible", colour: "--muted", dash: DASH },
    ],
  },
  {
    name: "log-loss",
    title: "Log-loss",
    note: "on rows kept for evaluation; lower is better",
    kind: "evaluation",
    best: "lowest",
    lines: [
      { name: "log_loss", label: "log-loss", colour: "--good" },
      { name: "validation_log_loss", label: "validation rows", colour: "--series-2" },
      { name: "train_log_loss", label: "training rows", colour: "--accent" },
      { name: "constant_log_loss", label: "constant predictor", colour: "--muted", dash: DASH },
    ],
  },
  {
    name: "normalized-entropy",
    title: "Normalized entropy",
    note: "log-loss by a constant predictor's; lower is better",
    kind: "evaluation",
    best: "lowest",
    lines: [{ name: "normalized_entropy", label: "normalized entropy", colour: "--good" }],
  },
  {
    name: "calibration",
    title: "Calibration",
    note: "sum of predictions by sum of labels; 1 is right",
    kind: "evaluation",
    best: "nearest to 1",
    lines: [
      { name: "calibration", label: "calibration", colour: "--good" },
      { name: "validation_calibration", label: "validation rows", colour: "--series-2" },
      RIGHT,
    ],
  },
  {
    name: "learning-rates",
    title: "Learning rates",
    note: "of the dense parameters and of the embedding tables",
    kind: "training",
    lines: [
      { name: "dense_learning_rate", label: "dense parameters", colour: "--accent" },
      { name: "table_learning_rate", label: "tables", colour: "--series-2", dash: DASH },
    ],
  },
  {
    name: "batch",
    title: "Batch",
    note: "samples of a step, over all ranks",
    kind: "training",
    format: integer,
    unit: "samples",
    lines: [{ name: "global_size", label: "batch", colour: "--accent" }],
  },
  {
    name: "samples-per-second",
    title: "Samples/s",
    note: "over all ranks",
    kind: "training",
    format: rate,
    unit: "samples/s",
    best: "highest",
    lines: [{ name: "samples_per_second", label: "samples/s", colour: "--accent", isSmoothed: true, hasBand: true }],
  },
].map((chart) => ({ ...DEFAULTS, ...chart }));

/** Curves of evaluations whose names depend on the job: within groups, and of the tasks after the first. */
const FURTHER_NAMES = ["grouped", "tasks"];

/** Names of the curves of one kind that the charts need. */
export const listNames = (kind) => [
  ...CHARTS.filter((chart) => chart.kind === kind).flatMap(({ lines }) => lines.map(({ name }) => name).filter(Boolean)),
  ...(kind === "evaluation" ? FURTHER_NAMES : []),
];

/** Make the charts of what evaluations have beyond `CHARTS`, by the names of the curves that there are. */
export function listFurtherCharts(names) {
  const ofTasks = listOfTasks(names).map(({ name, task, figure: own, title, meaning, best }) => ({
    name: `task-${task}-${own}`,
    title: `${title} of ${task}`,
    note: `on rows with its label; ${meaning}`,
    best,
    lines: [{ name, label: title.toLowerCase().replace("auc", "AUC"), colour: "--good" }, ...(own === "calibration" ? [RIGHT] : [])],
  }));
  const withinGroups = names.includes("grouped_auc") ? [GROUPED_AUC] : [];
  const ranked = Object.values(Object.groupBy(listRanked(names), ({ word }) => word)).map(makeRankedChart);
  return [...ofTasks, ...withinGroups, ...ranked].map((chart) => ({ ...DEFAULTS, kind: "evaluation", ...chart }));
}

const GROUPED_AUC = {
  name: "grouped-auc",
  title: "AUC within groups",
  note: "mean over groups; 0.5 is a guess, 1 is perfect",
  best: "highest",
  lines: [{ name: "grouped_auc", label: "AUC", colour: "--good" }],
};

/** Make the chart of one figure within groups at all its ranks. */
const makeRankedChart = (figures) => ({
  name: figures[0].word.toLowerCase(),
  title: `${figures[0].word} within groups`,
  note: figures[0].meaning,
  best: "highest",
  lines: figures.map(({ name, word, rank }, index) => ({ name, label: `${word}@${rank}`, colour: `--series-${1 + (index % NUM_COLOURS)}` })),
});
