// Panel of what to change in a job: pieces of advice with figures, lines for the document, and a new job with them.
import { get, isPassing } from "../common/api.js";
import { copyButton } from "../common/copy.js";
import { element } from "../common/elements.js";
import { KeyedRows } from "../common/keyed_rows.js";

const MILLISECONDS_BETWEEN = 10_000;
/** Steps from which a run is said to have been measured. */
const FEW_STEPS = 10;
/** How sure a piece of advice is, in words. */
const CERTAINTY = { high: "sure", medium: "likely", low: "worth a try" };
/** States in which a job without advice has nothing under this title: its message says what to do. */
const NO_NOTE = new Set(["FAILED", "CANCELLED"]);

/** Panel that asks for advice when something has happened to its job, at most every ten seconds. */
export class WhatToChange {
  #list = element("ol", { class: "advice-items" });
  #note = element("p", { class: "hint" });
  /** Items by the name of their rule, so that each stays where it is while others change. */
  #rows = new KeyedRows(this.#list, {
    getKey: ({ name }) => name,
    make: ({ name }) => ({ row: element("li", { "data-name": name }), content: null }),
    fill: (parts, item) => this.#fillItem(parts, item),
  });
  #seen = null;
  #timer = null;
  #askedAt = -Infinity;

  /** section: an empty hidden <section>. path: API path of the job. */
  constructor(section, path) {
    this.section = section;
    this.path = path;
    const title = element("h2", { id: "advice-title" }, "What to change");
    section.setAttribute("aria-labelledby", title.id);
    section.append(title, this.#note, this.#list);
  }

  /** Ask for advice if the job's state, its evaluations, its events or its place in the queue have changed. */
  show(job, newestEvent) {
    this.job = job;
    const { state, message, progress, queue } = job;
    const place = [queue?.waits_for, queue?.expected_start_at];
    const seen = JSON.stringify([state, message, progress.auc, progress.step >= FEW_STEPS, newestEvent, ...place]);
    if (seen === this.#seen) return;
    this.#seen = seen;
    const pause = Math.max(0, this.#askedAt + MILLISECONDS_BETWEEN - performance.now());
    this.#timer ??= setTimeout(() => this.#ask(), pause);
  }

  async #ask() {
    this.#timer = null;
    this.#askedAt = performance.now();
    try {
      this.#fill(await get(`${this.path}/advice`));
    } catch (error) {
      // The rest of the page says what is wrong with the service.
      if (isPassing(error)) this.#askLater();
    }
  }

  #askLater() {
    this.#timer ??= setTimeout(() => this.#ask(), MILLISECONDS_BETWEEN);
  }

  #fill({ items, note, is_comparing }) {
    if (is_comparing) this.#askLater();
    this.section.hidden = items.length === 0 && (!note || NO_NOTE.has(this.job.state));
    this.#note.hidden = !note;
    this.#note.textContent = note ?? "";
    this.#list.hidden = items.length === 0;
    this.#rows.show(items);
  }

  /** Fill an item; what has not changed stays as it is. */
  #fillItem(parts, item) {
    const content = JSON.stringify(item);
    if (parts.content !== content) parts.row.replaceChildren(...makeParts(item, this.job.id));
    parts.content = content;
  }
}

function makeParts({ message, gain, certainty, reason, changes }, jobId) {
  const words = element("div", { class: "advice-words" }, element("p", {}, message));
  const sure = element("small", {}, element("span", { class: "certainty", "data-certainty": certainty }, CERTAINTY[certainty]), ` ${reason}`);
  if (gain) words.append(element("p", { class: "gain" }, `Gain: ${gain.words}`));
  words.append(sure);
  if (changes.length === 0) return [words];
  const lines = changes.map(({ toml }) => toml).join("\n");
  const code = element("pre", { tabindex: "0", role: "group", "aria-label": "lines of the job document" }, lines);
  const query = new URLSearchParams({ from: jobId });
  for (const { field, toml } of changes) query.append("set", `${field}:${toml.slice(`${field} = `.length)}`);
  const link = element("a", { class: "button", href: `/new?${query}` }, "New job with this");
  const buttons = element("div", { class: "buttons" }, copyButton(() => lines, "these lines"), link);
  return [words, element("div", { class: "advice-change" }, code, buttons)];
}
