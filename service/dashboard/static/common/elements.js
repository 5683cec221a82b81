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

/** Let the name of a field break after its dots and underscores. */
export const breakName = (name) => name.split(/(?<=[._])/).flatMap((part, index) => (index ? [element("wbr"), part] : [part]));

/** Fill a <dl> with tiles, each a name, a value and a note on it; those whose number stays are refilled in place. */
export function showTiles(list, tiles) {
  if (list.children.length !== tiles.length) {
    const make = () => element("div", {}, element("dt", {}, ""), element("dd", {}, "", element("small")));
    list.replaceChildren(...tiles.map(make));
  }
  tiles.forEach(([name, value, note], index) => {
    const [title, shown] = list.children[index].children;
    const texts = [title.firstChild, shown.firstChild, shown.lastChild];
    [name, value, note].forEach((text, part) => {
      if (texts[part].textContent !== text) texts[part].textContent = text;
    });
  });
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
  const fraction = job.progress.done_fraction;
  const isWaiting = ["QUEUED", "RECOVERING", "PAUSED"].includes(job.state) || hasEnded(job);
  if (isKnown(fraction) || isWaiting) bar.value = fraction ?? 0;
  else bar.removeAttribute("value");
  bar.dataset.state = job.state;
}

/** Create one chip per label, a link to the list of all jobs with it. */
export function labelChips(job) {
  const makeChip = ([name, value]) => {
    const href = `/?${new URLSearchParams({ label: `${name}:${value}` })}`;
    return element("a", { class: "label", href, title: "All jobs with this label" }, `${name}: ${value}`);
  };
  return Object.entries(job.labels).map(makeChip);
}
