// Page of all jobs. Rows are created once and refilled at every update, so that focus and selection stay.
import { get } from "../common/api.js";
import { element, labelChips, showProgress, showState } from "../common/elements.js";
import { ago, figure, rate } from "../common/format.js";
import { showCapacity, startHeader } from "../common/header.js";
import { progressText, reasonText } from "../common/state.js";
import { ALL, Updates } from "../common/updates.js";

const PAGE_SIZE = 50;
const MAX_SHOWN = 200;
const CLOCK_MILLISECONDS = 10_000;

const table = document.getElementById("jobs");
const empty = document.getElementById("empty");
const older = document.getElementById("older");
const stateFilter = document.getElementById("state");
const rows = new Map();
let limit = PAGE_SIZE;

function makeRow(job) {
  const link = element("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, job.name);
  const parts = {
    state: element("span"),
    reason: element("small", { class: "reason" }),
    bar: element("progress", { max: 1, "aria-label": `progress of ${job.name}` }),
    text: element("small"),
    loss: element("td", { class: "number", "data-label": "loss" }),
    auc: element("td", { class: "number", "data-label": "AUC" }),
    rate: element("td", { class: "number", "data-label": "samples/s" }),
    created: element("td", { class: "number", "data-label": "created" }),
  };
  const row = element(
    "tr",
    {},
    element("td", { class: "job" }, link, element("small", {}, job.id), ...labelChips(job)),
    element("td", {}, parts.state, parts.reason),
    element("td", { class: "progress" }, parts.bar, parts.text),
    parts.loss,
    parts.auc,
    parts.rate,
    parts.created,
  );
  return { row, ...parts };
}

function fillRow(parts, job) {
  showState(parts.state, job);
  parts.reason.textContent = reasonText(job);
  parts.reason.title = job.message ?? "";
  showProgress(parts.bar, job);
  parts.text.textContent = progressText(job);
  parts.loss.textContent = figure(job.progress.loss);
  parts.auc.textContent = figure(job.progress.auc);
  parts.rate.textContent = rate(job.progress.samples_per_second);
  parts.created.textContent = ago(job.created_at);
  parts.created.title = job.created_at;
}

/** Jobs of the page by their ids. */
let jobs = new Map();
/** Messages that came while the list was being read, which may be older than they are. */
let late = null;
let hasOlder = false;
let isCapacityOld = true;

function take(name, content) {
  if (name === "reset") return;
  late?.push([name, content]);
  if (name === "gone") {
    const wasShown = jobs.delete(content.id);
    isCapacityOld ||= wasShown;
    return;
  }
  isCapacityOld ||= jobs.get(content.id)?.state !== content.state;
  // Jobs older than the shown ones stay out.
  const isShown = jobs.has(content.id) || !hasOlder || [...jobs.keys()].some((id) => id < content.id);
  if (isShown) jobs.set(content.id, content);
}

async function readList() {
  const query = new URLSearchParams({ limit });
  if (stateFilter.value) query.set("state", stateFilter.value);
  late = [];
  const page = await get(`/v1/jobs?${query}`);
  jobs = new Map(page.items.map((job) => [job.id, job]));
  hasOlder = page.next_cursor !== null;
  isCapacityOld = true;
  const missed = late;
  late = null;
  for (const [name, content] of missed) take(name, content);
}

async function update(changed) {
  if (changed.has(ALL) || changed.has("reset") || (hasOlder && jobs.size < PAGE_SIZE)) await readList();
  const newest = [...jobs.values()].sort((one, other) => (one.id < other.id ? 1 : -1));
  if (newest.length > limit) hasOlder = true;
  for (const { id } of newest.splice(limit)) jobs.delete(id);
  const shown = newest.map((job) => {
    if (!rows.has(job.id)) rows.set(job.id, makeRow(job));
    fillRow(rows.get(job.id), job);
    return rows.get(job.id).row;
  });
  const body = table.tBodies[0];
  const isSame = shown.length === body.rows.length && shown.every((row, index) => row === body.rows[index]);
  if (!isSame) body.replaceChildren(...shown);
  table.hidden = shown.length === 0;
  empty.hidden = shown.length > 0;
  older.hidden = !hasOlder || limit >= MAX_SHOWN;
  if (isCapacityOld) await showCapacity();
  isCapacityOld = false;
}

startHeader();
// Ages and times to a restart grow without a message.
setInterval(() => jobs.forEach((job, id) => rows.has(id) && fillRow(rows.get(id), job)), CLOCK_MILLISECONDS);
const path = () => `/v1/stream?${new URLSearchParams(stateFilter.value ? { state: stateFilter.value } : {})}`;
const updates = new Updates(update, { path, names: ["job", "gone", "reset"], take });
stateFilter.addEventListener("change", () => updates.restart());
older.addEventListener("click", () => {
  limit = MAX_SHOWN;
  updates.updateNow();
});
