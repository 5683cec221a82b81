// Tables of a comparison: differing settings, and final figures with their intervals.
import { element } from "../common/elements.js";
import { isKnown, percent } from "../common/format.js";
import { hasEnded } from "../common/state.js";
import { letterOf } from "./cards.js";
import { setColour } from "./colours.js";
import { fillGrid } from "./grid.js";
import { describeFigure, differenceText, settingText } from "./words.js";

/** Return the jobs of each group, by its number. */
export function groupJobs(jobs) {
  const groups = [];
  for (const job of jobs) (groups[job.group] ??= []).push(job);
  return groups;
}

/** Name a group: the name of its jobs, or of the first one and how many there are. */
function nameGroup(jobs) {
  const isOneName = jobs.every((job) => job.name === jobs[0].name);
  return jobs.length === 1 ? jobs[0].name : `${jobs[0].name}${isOneName ? "" : " …"}`;
}

/** Fill the head of a table: a column for each group, with the colours of its jobs. */
function fillHead(table, first, groups) {
  const row = table.tHead.rows[0];
  const key = JSON.stringify(groups.map((jobs) => jobs.map((job) => job.id)));
  if (row.dataset.groups === key) return;
  row.dataset.groups = key;
  const heads = groups.map((jobs, number) => {
    const dots = jobs.map((job) => {
      const dot = element("span", { class: "dot" });
      setColour(dot, job.id);
      return dot;
    });
    const notes = [number === 0 ? "baseline" : "", jobs.length > 1 ? `${jobs.length} seeds` : ""].filter(Boolean).join(" · ");
    const name = element("span", { class: "name" }, nameGroup(jobs));
    return element("th", { scope: "col" }, ...dots, element("span", { class: "letter" }, letterOf(number)), name, element("small", {}, notes));
  });
  row.replaceChildren(element("th", { scope: "col" }, first), ...heads);
}

/** Fill the table of differing settings; cells that differ from the baseline are marked. */
export function showSettings(table, { jobs, settings }) {
  fillHead(table, "Setting", groupJobs(jobs));
  fillGrid(table.tBodies[0], settings.map(({ field, meaning, values }) => {
    const base = JSON.stringify(values[0]);
    return {
      key: field,
      head: { text: field, notes: meaning ? [{ text: meaning }] : [] },
      cells: values.map((value) => {
        const isChanged = JSON.stringify(value) !== base;
        return { text: settingText(value), className: isChanged ? "changed" : "", title: isChanged ? "differs from the baseline" : "" };
      }),
    };
  }));
}

const SOURCES = {
  seeds: ({ num_jobs }) => `${num_jobs} seeds`,
  rows: () => "evaluation rows",
};

/** Describe a figure of jobs that have not succeeded: what they have so far. */
function describeRest(name, jobs) {
  const running = jobs.filter((job) => !hasEnded(job) && isKnown(job.progress[name]));
  if (!running.length) return { text: "–", className: "number" };
  const { progress } = running[0];
  const done = percent(progress.done_fraction);
  return { text: describeFigure(name).format(progress[name]), notes: [{ text: `so far${done && `, at ${done}`}` }], className: "number unfinished" };
}

function describeValue(item, number, jobs) {
  const value = item.values[number];
  const { format, isRelative } = describeFigure(item.name);
  if (value === null) return describeRest(item.name, jobs);
  const notes = [];
  // No speed or time is below 0, whatever Student's formula says.
  const low = isRelative ? Math.max(value.low, 0) : value.low;
  if (isKnown(value.low)) notes.push({ text: `${format(low)} to ${format(value.high)} (${SOURCES[value.source](value)})` });
  const difference = item.differences[number];
  if (difference) {
    const tone = difference.is_certain ? (difference.is_better ? "better" : "worse") : "open";
    const words = { better: "better", worse: "worse", open: "may be chance" };
    const text = differenceText(item.name, difference, item.values[0].mean);
    notes.push({ text: isKnown(difference.low) ? `${text}, ${words[tone]}` : text, className: tone });
  }
  const isBest = item.best === number;
  return { text: format(value.mean), notes: isBest ? [{ text: "best", className: "best" }, ...notes] : notes, className: "number" };
}

/** Fill the table of figures: means, 95 % intervals and differences from the baseline. */
export function showFigures(table, { jobs, figures }) {
  const groups = groupJobs(jobs);
  fillHead(table, "Figure", groups);
  fillGrid(table.tBodies[0], figures.map((item) => {
    const { title, meaning } = describeFigure(item.name);
    const note = [meaning, item.better && `${item.better} is better`].filter(Boolean).join("; ");
    return {
      key: item.name,
      head: { text: title, notes: note ? [{ text: note }] : [] },
      cells: groups.map((own, number) => ({ ...describeValue(item, number, own), letter: letterOf(number) })),
    };
  }));
}

/** Return the rows of a CSV file of settings and figures, a column for each group. */
export function listCsvRows({ jobs, settings, figures }) {
  const groups = groupJobs(jobs);
  const part = (item, name) => item.values.map((value) => value?.[name]);
  return [
    ["kind", "name", ...groups.map((own, number) => letterOf(number))],
    ["jobs", "ids", ...groups.map((own) => own.map((job) => job.id).join(" "))],
    ["jobs", "names", ...groups.map((own) => own.map((job) => job.name).join(" "))],
    ...settings.map(({ field, values }) => ["setting", field, ...values]),
    ...figures.flatMap((item) => [
      ["figure", item.name, ...part(item, "mean")],
      ["low", item.name, ...part(item, "low")],
      ["high", item.name, ...part(item, "high")],
      ["jobs in the mean", item.name, ...part(item, "num_jobs")],
    ]),
  ];
}
