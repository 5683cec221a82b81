// Rows of the table. Each is made once and filled again at every change.
import { byId, element, showProgress, showState } from "../common/elements.js";
import { ago, capitalize, duration, figure, integer, isKnown, rate } from "../common/format.js";
import { hasEnded, progressText, reasonText } from "../common/state.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { dateTime } from "../common/times.js";
import { formatQuery, isFiltered, toggleLabel } from "./query.js";

/** Largest number of labels in a row; the page of the job has all. */
const MAX_LABELS = 6;
const cell = (label) => element("td", { class: "number", "data-label": label });

/** The rows of a table. */
export class Rows {
  constructor(table, selection) {
    this.body = table.tBodies[0];
    this.selection = selection;
    this.rows = new KeyedRows(this.body, { getKey: (job) => job.id, make: this.#make, fill: (parts, job) => this.#fill(parts, job) });
    this.body.addEventListener("keydown", moveBetweenRows);
  }

  /** Show these jobs, and no others. */
  show(jobs, query) {
    this.query = query;
    this.rows.show(jobs);
  }

  #fill(parts, job) {
    fill(parts, job, this.query);
    parts.pick.checked = this.selection.has(job.id);
    parts.row.toggleAttribute("data-picked", parts.pick.checked);
  }

  #make(job) {
    const pick = element("input", { type: "checkbox", "aria-label": `Select ${job.name}`, "data-id": job.id });
    const parts = {
      pick,
      state: element("span"),
      reason: element("small", { class: "reason" }),
      labels: element("span", { class: "labels" }),
      bar: element("progress", { max: 1, "aria-label": `Progress of ${job.name}` }),
      text: element("small"),
      why: element("p", { class: "why" }),
      ...{ rate: cell("samples/s"), auc: cell("AUC"), batch: cell("batch") },
      optimizer: element("td", { "data-label": "optimizer" }),
      owner: element("td", { class: "owner", "data-label": "owner" }, job.owner),
      age: cell("created"),
    };
    const link = element("a", { class: "name", href: `/jobs/${encodeURIComponent(job.id)}` }, job.name);
    parts.row = element(
      "tr",
      {},
      element("td", { class: "pick" }, element("label", {}, pick)),
      element("td", { class: "status" }, parts.state, parts.reason),
      element("th", { scope: "row" }, link, parts.labels, element("code", {}, job.id)),
      element("td", { class: "progress" }, parts.bar, parts.text, parts.why),
      ...[parts.rate, parts.auc, parts.batch, parts.optimizer, parts.owner, parts.age],
    );
    return parts;
  }
}

function fill(parts, job, query) {
  showState(parts.state, job);
  // Why a job waits or has failed stands beside it, in a sentence.
  parts.reason.textContent = job.state === "QUEUED" && job.message ? "" : reasonText(job);
  showLabels(parts, job, query);
  const isMoving = !hasEnded(job) && (isKnown(job.progress.done_fraction) || job.state === "RUNNING");
  parts.bar.hidden = !isMoving;
  showProgress(parts.bar, job);
  parts.text.textContent = job.state === "SUCCEEDED" ? endText(job) : progressText(job);
  parts.why.textContent = whyText(job);
  parts.why.title = parts.why.textContent;
  parts.why.toggleAttribute("data-failed", job.state === "FAILED");
  parts.rate.textContent = rate(job.progress.samples_per_second);
  parts.auc.textContent = figure(job.progress.auc);
  parts.batch.textContent = integer(job.batch);
  parts.optimizer.textContent = (job.optimizer ?? "–").replaceAll("_", " ");
  parts.age.textContent = ago(job.created_at);
  parts.age.title = dateTime(job.created_at);
}

/** Describe in a sentence why a job waits or has ended; empty if its state says enough. */
function whyText(job) {
  if (job.has_warnings) return "There are warnings about its model.";
  if (["RUNNING", "STARTING", "SUCCEEDED"].includes(job.state)) return "";
  if (job.state === "QUEUED" && !job.message) return "It starts as soon as its turn comes.";
  return job.state === "QUEUED" && !job.is_held ? `Waits: ${job.message}` : capitalize(job.message ?? "");
}

function endText(job) {
  const seconds = (Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000;
  const steps = isKnown(job.progress.step) ? `${integer(job.progress.step)} steps` : "";
  return [steps, Number.isFinite(seconds) ? `in ${duration(seconds)}` : ""].filter(Boolean).join(" ");
}

/** Show the labels as links that narrow the list to them, or widen it again. */
function showLabels(parts, job, query) {
  const shown = JSON.stringify([job.labels, query]);
  if (parts.shownLabels === shown) return;
  parts.shownLabels = shown;
  const isChosen = ([name, value]) => query.labels.includes(`${name}:${value}`);
  const labels = Object.entries(job.labels).sort((one, other) => isChosen(other) - isChosen(one));
  const numLeftOut = labels.length - MAX_LABELS;
  parts.labels.replaceChildren(
    ...labels.slice(0, MAX_LABELS).map((label) => {
      const [name, value] = label;
      const title = isChosen(label) ? "Show jobs without this label, too" : "Show only jobs with this label";
      const href = formatQuery(toggleLabel(query, name, value));
      const link = element("a", { class: "label", href, title, "data-query": "" }, `${name}: ${value}`);
      if (isChosen(label)) link.setAttribute("aria-current", "true");
      return link;
    }),
    numLeftOut > 0 ? element("small", {}, `and ${integer(numLeftOut)} more`) : "",
  );
}

/** Move the focus to the job above or below, with the arrow keys. */
function moveBetweenRows(event) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const row = event.target.closest("tr");
  if (!step || !row || event.altKey || event.ctrlKey || event.metaKey) return;
  const next = step < 0 ? row.previousElementSibling : row.nextElementSibling;
  if (!next) return;
  event.preventDefault();
  next.querySelector(event.target.matches("input") ? "input" : "a.name").focus();
}

/** Say how many jobs there are, as far as they were counted. */
export function showTotal({ num_jobs, is_exact }, query) {
  const number = is_exact ? integer(num_jobs) : `more than ${integer(num_jobs)}`;
  byId("total").textContent = num_jobs === 0 ? "" : isFiltered(query) ? `${number} match` : number;
}
