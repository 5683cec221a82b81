// The jobs that wait, in the order in which they are considered.
import { byId, element } from "../common/elements.js";
import { ago, estimate, integer } from "../common/format.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { nearTime } from "../common/times.js";
import { formatAmounts } from "./amounts.js";

const rows = new KeyedRows(byId("queue").querySelector("tbody"), { getKey: (job) => job.id, make, fill });

/** Show the queue of a launcher. */
export function showQueue({ jobs, num_jobs: number, num_of_others: numOfOthers }) {
  rows.show(jobs);
  byId("queue").hidden = jobs.length === 0;
  const own = number - numOfOthers;
  const notes = [];
  if (own > jobs.length) notes.push(`The first ${integer(jobs.length)} of ${integer(own)} jobs.`);
  if (numOfOthers) notes.push(numOfOthers === 1 ? "One job of another owner waits too." : `${integer(numOfOthers)} jobs of other owners wait too.`);
  byId("queue-note").textContent = notes.join(" ");
  byId("queue-note").hidden = notes.length === 0;
  byId("queue-empty").hidden = number > 0;
}

function make(job) {
  const parts = {
    position: element("td", { class: "number", "data-label": "Place" }),
    waits: element("span"),
    asks: element("small"),
    start: element("td", { "data-label": "Expected start" }),
    since: element("td", { class: "number", "data-label": "Submitted" }),
  };
  parts.row = element(
    "tr",
    {},
    parts.position,
    element("th", { scope: "row" }, element("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, job.name), element("small", {}, job.owner)),
    element("td", {}, parts.waits, parts.asks),
    parts.start,
    parts.since,
  );
  return parts;
}

function fill(parts, job) {
  parts.position.textContent = integer(job.position);
  parts.waits.textContent = job.waits_for || "is about to start";
  const priority = job.priority ? ` · priority ${job.priority}` : "";
  parts.asks.textContent = `asks for ${formatAmounts(job)}${priority}`;
  parts.start.textContent = startText(job.expected_start_at);
  parts.since.textContent = ago(job.created_at);
}

function startText(time) {
  if (time === null) return "cannot be said";
  const seconds = (Date.parse(time) - Date.now()) / 1000;
  return seconds < 60 ? "within a minute" : `${nearTime(time)}, in ${estimate(seconds)}`;
}
