// The compared jobs, a card each: name, state, owner, what it has so far, and what can be done with it here.
import { element, showState } from "../common/elements.js";
import { figure, isKnown } from "../common/format.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { hasEnded, progressText } from "../common/state.js";
import { sweepLink } from "../common/sweep_link.js";
import { setColour } from "./colours.js";

export const letterOf = (group) => String.fromCharCode(65 + group);

/** Describe how far a job is, and the figures that it has so far. */
function describeProgress(job) {
  const { auc, loss } = job.progress;
  const parts = hasEnded(job) ? [] : [progressText(job)];
  if (isKnown(auc)) parts.push(`AUC ${figure(auc)}`);
  if (!hasEnded(job) && isKnown(loss)) parts.push(`loss ${figure(loss)}`);
  return parts.filter(Boolean).join(" · ");
}

function makeCard(job, actions) {
  const parts = {
    letter: element("span", { class: "letter" }),
    state: element("span", { class: "state" }),
    about: element("small"),
    progress: element("small"),
    role: element("span", { class: "label" }, "baseline"),
    base: element("button", { type: "button", class: "quiet", title: "Count all differences from this job" }, "Use as baseline"),
  };
  const remove = element("button", { type: "button", class: "quiet", "aria-label": `Remove ${job.name} from the comparison` }, "Remove");
  parts.base.setAttribute("aria-label", `Use ${job.name} as baseline`);
  const link = element("a", { href: `/jobs/${encodeURIComponent(job.id)}`, title: job.id }, job.name);
  parts.base.addEventListener("click", () => {
    // The button goes, and would take the focus with it.
    link.focus();
    actions.setBaseline(job.id);
  });
  remove.addEventListener("click", () => actions.remove(job.id));
  const sweep = sweepLink(job);
  const heading = element("p", {}, element("span", { class: "dot" }), parts.letter, link, parts.state);
  const row = element("li", {}, heading, parts.about, parts.progress, ...(sweep ? [element("small", {}, sweep)] : []));
  row.append(element("p", { class: "buttons" }, parts.role, parts.base, remove));
  setColour(row, job.id);
  return { row, ...parts };
}

function fillCard(card, job) {
  card.letter.textContent = letterOf(job.group);
  showState(card.state, job);
  card.about.textContent = [job.owner, `seed ${job.seed}`].filter(Boolean).join(" · ");
  card.progress.textContent = describeProgress(job);
  card.role.hidden = job.group !== 0;
  card.base.hidden = job.group === 0;
}

/** Make the list of compared jobs. actions: `setBaseline(id)` and `remove(id)`. */
export const makeCards = (list, actions) =>
  new KeyedRows(list, { getKey: ({ id }) => id, make: (job) => makeCard(job, actions), fill: fillCard });
