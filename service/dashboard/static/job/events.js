// Tab of the events of a job, newest first. Checkpoints in a row are one entry, unless all are requested.
import { byId, element } from "../common/elements.js";
import { clock, integer } from "../common/format.js";
import { EventStore } from "./event_store.js";
import { path, startJob } from "./frame.js";

const CHECKPOINT_SAVED = "checkpoint_saved";
const events = new EventStore(path);
const all = byId("all-events");

function show() {
  const entries = [];
  for (const event of events.list()) {
    const last = entries.at(-1);
    const isOneMore = event.name === CHECKPOINT_SAVED && last?.event.name === CHECKPOINT_SAVED;
    if (isOneMore && !all.checked) entries[entries.length - 1] = { event, count: last.count + 1 };
    else entries.push({ event, count: 1 });
  }
  byId("events").replaceChildren(...entries.reverse().map(makeItem));
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

all.addEventListener("change", show);
startJob({ update: show, names: ["event"], events });
