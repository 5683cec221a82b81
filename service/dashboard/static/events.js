// The events of a job, the newest first; checkpoints with nothing in between are one, unless all are asked for.
import { get } from "./api.js";
import { clock, element, integer } from "./format.js";

const PAGE_SIZE = 200;
const CHECKPOINT_SAVED = "checkpoint_saved";

export class Events {
  /** list: where they are shown. all: a checkbox. path: of the job. */
  constructor(list, all, path) {
    this.list = list;
    this.all = all;
    this.path = path;
    this.cursor = null;
    this.seen = new Map();
    all.addEventListener("change", () => this.show());
  }

  async update() {
    const numShown = this.seen.size;
    for (;;) {
      const query = new URLSearchParams({ limit: PAGE_SIZE });
      if (this.cursor) query.set("cursor", this.cursor);
      const page = await get(`${this.path}/events?${query}`);
      for (const event of page.items) this.seen.set(event.id, event);
      // The last page has no cursor yet: it is read again until it is full.
      if (!page.next_cursor) break;
      this.cursor = page.next_cursor;
    }
    if (this.seen.size > numShown) this.show();
  }

  /** The last one of a name that arrived. */
  last(name) {
    return [...this.seen.values()].findLast((event) => event.name === name);
  }

  show() {
    // What ranks report arrives later than what the service does itself.
    const inOrder = [...this.seen.values()].sort((one, other) => Date.parse(one.time) - Date.parse(other.time));
    const lines = [];
    for (const event of inOrder) {
      const last = lines.at(-1);
      const isOneMore = event.name === CHECKPOINT_SAVED && last?.event.name === CHECKPOINT_SAVED;
      if (isOneMore && !this.all.checked) lines[lines.length - 1] = { event, count: last.count + 1 };
      else lines.push({ event, count: 1 });
    }
    this.list.replaceChildren(...lines.reverse().map(item));
  }
}

function item({ event, count }) {
  const [what, message] = text(event);
  const rank = event.rank === null || event.rank === undefined ? "" : ` · rank ${event.rank}`;
  const many = count > 1 ? ` · the last of ${integer(count)}` : "";
  return element(
    "li",
    { "data-kind": event.kind, "data-what": what },
    element("time", { datetime: event.time }, clock(event.time)),
    element("div", {}, element("strong", {}, what), element("small", {}, rank + many), element("p", {}, message ?? "")),
  );
}

function text(event) {
  if (event.kind !== "state") return [event.name, event.message];
  const change = event.to_state.toLowerCase();
  return [change, [event.reason?.replaceAll("_", " "), event.message].filter(Boolean).join(": ")];
}
