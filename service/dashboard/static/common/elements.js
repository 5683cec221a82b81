// Elements of pages. Text goes only into text nodes.
import { isKnown } from "./format.js";
import { hasEnded } from "./state.js";

export const byId = (id) => document.getElementById(id);

/** Create an element with attributes and children; strings become text nodes. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Fill a <dl> with tiles, each a name, a value and a note on it. */
export function showTiles(list, tiles) {
  list.replaceChildren(
    ...tiles.map(([name, value, note]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, note))),
    ),
  );
}

/** Show the state of a job or an attempt; a job with warnings about its model is no plain success. */
export function showState(target, { state, has_warnings = false }) {
  target.textContent = state.toLowerCase();
  target.className = "state";
  target.dataset.state = state;
  target.toggleAttribute("data-warned", has_warnings);
}

/** Fill a <progress>: empty while a job waits, moving while its progress is unknown. */
export function showProgress(bar, job) {
  const fraction = job.state === "SUCCEEDED" ? 1 : job.progress.done_fraction;
  const isWaiting = ["QUEUED", "RECOVERING", "PAUSED"].includes(job.state) || hasEnded(job);
  if (isKnown(fraction) || isWaiting) bar.value = fraction ?? 0;
  else bar.removeAttribute("value");
  bar.dataset.state = job.state;
}

/** Create one chip per label. */
export function labelChips(job) {
  return Object.entries(job.labels).map(([name, value]) => element("span", { class: "label" }, `${name}: ${value}`));
}
