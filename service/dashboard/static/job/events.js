// Tab of the events of a job, newest first, by attempt. Checkpoints in a row are one entry, unless all are requested.
import { byId, element } from "../common/elements.js";
import { ago, integer } from "../common/format.js";
import { setChildren } from "../common/keyed_rows.js";
import { eventTime } from "../common/times.js";
import { showTrouble } from "../common/trouble.js";
import { EventStore } from "./event_store.js";
import { actorOf, findKind, listDetails, messageOf, titleOf } from "./event_words.js";
import { path, startJob } from "./frame.js";

const CHECKPOINT_SAVED = "checkpoint_saved";
const KINDS = { state: "state", report: "report", action: "action", warning: "warning" };
const events = new EventStore(path);
const warnings = new Set(JSON.parse(byId("events").dataset.warnings));
const all = byId("all-events");
const chosenKinds = new Set();
/** Entries and groups that were made, by the id of their oldest event and by their title. */
const items = new Map();
const groups = new Map();
const chips = new Map();

function isWanted(event) {
  const text = byId("wanted").value.toLowerCase();
  if (chosenKinds.size && !chosenKinds.has(findKind(event, warnings))) return false;
  const words = [titleOf(event), event.name, messageOf(event), actorOf(event)].join(" ").toLowerCase();
  return words.includes(text);
}

/** List the entries, oldest first: an event, the id of the first one that it stands for, and their number. */
function listEntries(shown) {
  const entries = [];
  for (const event of shown) {
    const last = entries.at(-1);
    const isOneMore = event.name === CHECKPOINT_SAVED && last?.event.name === CHECKPOINT_SAVED;
    if (isOneMore && !all.checked) entries[entries.length - 1] = { ...last, event, count: last.count + 1 };
    else entries.push({ event, id: event.id, count: 1 });
  }
  return entries;
}

/** Group entries by attempt; one without a number belongs to the attempt before it. */
function groupByAttempt(entries) {
  const found = new Map();
  let attempt = events.older ? (entries.find(({ event }) => event.attempt)?.event.attempt ?? 0) : 0;
  for (const entry of entries) {
    attempt = entry.event.attempt ?? attempt;
    if (!found.has(attempt)) found.set(attempt, []);
    found.get(attempt).push(entry);
  }
  return [...found].sort(([one], [other]) => other - one);
}

function show() {
  const known = events.list();
  showChips(known);
  const shown = known.filter(isWanted);
  const made = groupByAttempt(listEntries(shown)).map(([attempt, entries]) => {
    const group = groups.get(attempt) ?? makeGroup(attempt);
    setChildren(group.lastChild, entries.reverse().map(fillItem));
    return group;
  });
  setChildren(byId("events"), made);
  byId("older").hidden = events.older === null;
  byId("no-events").hidden = shown.length > 0;
  byId("no-events").textContent = events.older
    ? "No event that was read matches; there are older ones."
    : "No event matches the filter.";
}

function makeGroup(attempt) {
  const title = attempt ? `Attempt ${attempt}` : "Before the first attempt";
  const group = element("section", { class: "event-group" }, element("h3", {}, title), element("ol", { class: "events" }));
  groups.set(attempt, group);
  return group;
}

function fillItem({ event, id, count }) {
  const item = items.get(`${id}`) ?? makeItem(`${id}`);
  if (item.shown === `${event.id} ${count}`) return item.node;
  item.shown = `${event.id} ${count}`;
  const kind = findKind(event, warnings);
  item.node.dataset.kind = kind;
  item.node.dataset.what = event.kind === "state" ? titleOf(event) : (event.name ?? titleOf(event));
  item.time.textContent = eventTime(event.time);
  item.time.dateTime = event.time;
  item.kind.textContent = KINDS[kind];
  item.title.textContent = titleOf(event);
  item.actor.textContent = [actorOf(event), count > 1 ? `the last of ${integer(count)}` : ""].map((part) => part && ` · ${part}`).join("");
  item.message.textContent = messageOf(event);
  item.details.hidden = Object.keys(event.details).length === 0;
  item.details.replaceChildren(item.details.firstChild);
  item.details.open = false;
  item.details.ontoggle = () => item.details.children.length === 1 && item.details.append(makeDetails(event.details));
  return item.node;
}

function makeItem(id) {
  const item = {
    time: element("time"),
    kind: element("span", { class: "event-kind" }),
    title: element("strong"),
    actor: element("small"),
    message: element("p"),
    details: element("details", {}, element("summary", {}, "Details")),
  };
  item.node = element(
    "li", {}, item.time, item.kind, element("div", {}, item.title, item.actor, item.message, item.details),
  );
  // How long ago it is changes until one points at it.
  item.time.addEventListener("pointerenter", () => (item.time.title = ago(item.time.dateTime)));
  items.set(id, item);
  return item;
}

function makeDetails(details) {
  const pairs = listDetails(details).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  return element("dl", {}, ...pairs);
}

/** Show a chip for each kind, with its number of events that were read. */
function showChips(known) {
  const counts = Object.groupBy(known, (event) => findKind(event, warnings));
  for (const [kind, word] of Object.entries(KINDS)) {
    const chip = chips.get(kind) ?? makeChip(kind);
    const count = counts[kind]?.length ?? 0;
    chip.textContent = `${word} ${integer(count)}${events.older ? "+" : ""}`;
    chip.hidden = count === 0 && !chosenKinds.has(kind);
  }
}

function makeChip(kind) {
  const chip = element("button", { type: "button", "aria-pressed": "false" });
  chip.addEventListener("click", () => {
    if (!chosenKinds.delete(kind)) chosenKinds.add(kind);
    chip.setAttribute("aria-pressed", chosenKinds.has(kind));
    show();
  });
  chips.set(kind, chip);
  byId("kinds").append(chip);
  return chip;
}

byId("older").addEventListener("click", async () => {
  byId("older").disabled = true;
  try {
    await events.readOlder();
    show();
  } catch (error) {
    showTrouble(error);
  } finally {
    byId("older").disabled = false;
  }
});
byId("wanted").addEventListener("input", show);
all.addEventListener("change", show);
startJob({ update: show, names: ["event"], events });
