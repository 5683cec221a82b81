// Columns of many jobs: which hold numbers, which vary most, and what a chart of them shows by default.
import { isKnown } from "../common/format.js";
import { describeFigure } from "./words.js";

/** Label with the key of a sweep's trial, another one for each job. */
const TRIAL_LABEL = "sweep-trial";
const SEED_NAMES = new Set(["run.seed", "seed"]);
/** Settings that change no result. */
const IDLE_NAMES = new Set(["max_restarts", "priority"]);
/** Names of settings that are looked at first, most useful one first. */
const USEFUL = [/^batch\.global_size$/, /learning_rate$/, /^(model|dense_optimizer|table_optimizer)\./];
/** Whether a column only says which repetition a job is. */
export const isSeed = ({ name }) => SEED_NAMES.has(name);
/** Figures that a chart shows by default, the first one that jobs have. */
const FIRST_FIGURES = ["auc", "log_loss", "samples_per_second"];

/** Return the key of a column in an address: a label and a setting may have one name. */
const keyOf = ({ kind, name }) => (kind === "label" ? `label.${name}` : name);

const titleOf = (column) => (column.kind === "figure" ? describeFigure(column.name).title : column.kind === "label" ? `label ${column.name}` : column.name);

/** Return a value as a number: numbers, and texts of labels that are numbers; null if it is none. */
function asNumber(value) {
  if (typeof value === "number") return value;
  return typeof value === "string" && value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : null;
}

/** Add to each column what charts need to know: its numbers, whether all are numbers, and its different values. Figures
 * come first; the keys of trials tell nobody anything. */
export function describeColumns(columns) {
  const ranks = { figure: 0, setting: 1, label: 2 };
  const shown = columns.filter(({ kind, name }) => kind !== "label" || name !== TRIAL_LABEL);
  shown.sort((one, other) => ranks[one.kind] - ranks[other.kind]);
  return shown.map((column) => {
    const known = column.values.filter(isKnown);
    const numbers = column.values.map(asNumber);
    const isNumeric = known.length > 0 && column.values.every((value, index) => !isKnown(value) || numbers[index] !== null);
    return { ...column, key: keyOf(column), title: titleOf(column), numbers, isNumeric, distinct: new Set(known).size };
  });
}

/** Choose what the vertical axis shows: a figure of quality if there is one. */
export function chooseY(columns) {
  const byName = (name) => columns.find((column) => column.kind === "figure" && column.name === name);
  return FIRST_FIGURES.map(byName).find(Boolean) ?? columns.find((column) => column.kind === "figure") ?? columns[0];
}

/** Choose what the horizontal axis shows: a useful setting that differs, numbers before words, most values first. */
function getUse({ name }) {
  const place = USEFUL.findIndex((pattern) => pattern.test(name));
  return place < 0 ? USEFUL.length : place;
}

export function chooseX(columns, y) {
  const rank = (column) => [
    column !== y,
    !isSeed(column) && !IDLE_NAMES.has(column.name) && column.distinct > 1,
    column.kind === "setting",
    column.isNumeric,
    column.kind !== "figure",
    column.kind === "setting" ? -getUse(column) : 0,
    column.distinct,
  ];
  const isBefore = (one, other) => {
    const index = one.findIndex((value, place) => value !== other[place]);
    return index >= 0 && one[index] > other[index];
  };
  return columns.reduce((best, column) => (isBefore(rank(column), rank(best)) ? column : best), columns[0]);
}

/** Return the values of a column with their numbers of jobs, most frequent first. */
export function countValues(column) {
  const counts = new Map();
  for (const value of column.values) if (isKnown(value)) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]);
}
