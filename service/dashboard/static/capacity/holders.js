// The jobs that hold resources.
import { byId, element, showProgress, showState } from "../common/elements.js";
import { estimate, integer, percent } from "../common/format.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { progressText } from "../common/state.js";
import { RESOURCES, cellClass, formatAmounts } from "./amounts.js";

const rows = new KeyedRows(byId("holders").querySelector("tbody"), { getKey: (job) => job.id, make, fill });

/** Show the jobs that hold resources of a launcher, and the sum of all jobs of other owners. */
export function showHolders({ jobs, others, owners }, launcher) {
  const shown = jobs.filter((job) => job.launcher === launcher);
  rows.show(shown);
  byId("holders").hidden = shown.length === 0;
  const number = owners.reduce((sum, owner) => sum + owner.num_jobs, 0);
  const notes = [];
  if (number > jobs.length) notes.push(`The newest ${integer(jobs.length)} of ${integer(number)} jobs.`);
  if (others.num_jobs) {
    const words = others.num_jobs === 1 ? "One job of another owner holds" : `${integer(others.num_jobs)} jobs of other owners hold`;
    notes.push(`${words} ${formatAmounts(others)}.`);
  }
  byId("holders-note").textContent = notes.join(" ");
  byId("holders-note").hidden = notes.length === 0;
  byId("idle").hidden = shown.length > 0 || others.num_jobs > 0;
}

function make(job) {
  const parts = {
    state: element("span"),
    bar: element("progress", { max: 1, "aria-label": `progress of ${job.name}` }),
    text: element("small"),
    left: element("td", { class: "number", "data-label": "Time left" }),
    amounts: RESOURCES.map((resource) => element("td", { class: cellClass(resource), "data-label": resource.title })),
  };
  parts.row = element(
    "tr",
    {},
    element("th", { scope: "row" }, element("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, job.name), element("small", {}, job.owner)),
    element("td", {}, parts.state),
    element("td", { class: "progress" }, parts.bar, parts.text),
    parts.left,
    ...parts.amounts,
  );
  return parts;
}

function fill(parts, job) {
  showState(parts.state, job);
  showProgress(parts.bar, job);
  parts.text.textContent = [percent(job.progress.done_fraction), progressText({ ...job, progress: { ...job.progress, eta_seconds: null } })]
    .filter(Boolean)
    .join(" · ");
  parts.left.textContent = estimate(job.progress.eta_seconds);
  RESOURCES.forEach(({ name, number, unit }, index) => {
    parts.amounts[index].textContent = [number(job[name]), unit].filter(Boolean).join(" ");
  });
}
