// The events of a job, newest first. Checkpoints in a row are one entry, unless all are requested.
import { get } from "./api.js";
import { clock, element, integer } from "./format.js";

const PAGE_SIZE = 200;
const CHECKPOINT_SAVED = "checkpoint_saved";

export class Events {
  /** list: element that shows the events. all: checkbox for every checkpoint. path: API path of the job. */
  constructor(list, all, path) {
    this.list = list;
    this.all = all;
    this.path = path;
    this.cursor = null;
    /** Id of the newest event. */
    this.newest = null;
    this.events = new Map();
    all.addEventListener("change", () => this.show());
  }

  /** Add an event, newer than all others; `show` is yet to be called. */
  add(event) {
    this.events.set(event.id, event);
    this.newest = event.id;
  }

  async update() {
    for (;;) {
      const query = new URLSearchParams({ limit: PAGE_SIZE });
      if (this.cursor) query.set("cursor", this.cursor);
      const page = await get(`${this.path}/events?${query}`);
      page.items.forEach((event) => this.add(event));
      // The last page has no cursor yet: it is read again until it is full.
      if (!page.next_cursor) break;
      this.cursor = page.next_cursor;
    }
    this.show();
  }

  /** Return the last event with this name that arrived. */
  findLast(name) {
    return [...this.events.values()].findLast((event) => event.name === name);
  }

  show() {
    // Reports of ranks arrive later than events of the service itself.
    const sorted = [...this.events.values()].sort((one, other) => Date.parse(one.time) - Date.parse(other.time));
    const entries = [];
    for (const event of sorted) {
      const last = entries.at(-1);
      const isOneMore = event.name === CHECKPOINT_SAVED && last?.event.name === CHECKPOINT_SAVED;
      if (isOneMore && !this.all.checked) entries[entries.length - 1] = { event, count: last.count + 1 };
      else entries.push({ event, count: 1 });
    }
    this.list.replaceChildren(...entries.reverse().map(makeItem));
  }
}

function makeItem({ event, count }) {
  const [title, message] = describe(event);
  const rank = event.rank === null || event.rank === undefined ? "" : ` · rank ${event.rank}`;
  const group = count > 1 ? ` · the last of ${integer(count)}` : "";
  return element(
    "li",
    { "data-kind": event.kind, "data-what": title },
    element("time", { datetime: event.time }, clock(event.time)),
    element(
      "div",
      {},
      element("strong", {}, title),
      element("small", {}, rank + group),
      element("p", {}, message ?? ""),
    ),
  );
}

function describe(event) {
  if (event.kind !== "state") return [event.name ?? event.reason?.replaceAll("_", " ") ?? event.kind, event.message];
  const change = event.to_state.toLowerCase();
  return [change, [event.reason?.replaceAll("_", " "), event.message].filter(Boolean).join(": ")];
}
