// Page of all jobs. Rows are created once and refilled at every update, so that focus and selection stay.
import { get, keepUpToDate, showCapacity, startHeader } from "./api.js";
import {
  ago, bytes, element, figure, labelChips, progressText, rate, reasonText, showProgress, showState,
} from "./format.js";

const PAGE_SIZE = 50;
const MAX_SHOWN = 200;

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

async function update() {
  const query = new URLSearchParams({ limit });
  if (stateFilter.value) query.set("state", stateFilter.value);
  const page = await get(`/v1/jobs?${query}`);
  const shown = page.items.map((job) => {
    if (!rows.has(job.id)) rows.set(job.id, makeRow(job));
    fillRow(rows.get(job.id), job);
    return rows.get(job.id).row;
  });
  const body = table.tBodies[0];
  const isSame = shown.length === body.rows.length && shown.every((row, index) => row === body.rows[index]);
  if (!isSame) body.replaceChildren(...shown);
  table.hidden = shown.length === 0;
  empty.hidden = shown.length > 0;
  older.hidden = page.next_cursor === null || limit >= MAX_SHOWN;
  await showCapacity(bytes);
}

startHeader();
const updateNow = keepUpToDate(update);
stateFilter.addEventListener("change", updateNow);
older.addEventListener("click", () => {
  limit = MAX_SHOWN;
  updateNow();
});
