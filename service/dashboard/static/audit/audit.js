// Page of the audit log, newest first. Its filters are in the address.
import { get, listFaults } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { startHeader } from "../common/header.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { Pages } from "../common/pages.js";
import { preciseTime } from "../common/times.js";
import { saveCsv } from "../common/files.js";
import { ACTIONS, describeAction, describeActor, findPage } from "./words.js";

const PAGE_SIZE = 100;
const TEXTS = ["actor", "action", "target"];
const TIMES = ["since", "until"];
const form = byId("filters");

const pages = new Pages("/v1/audit");
/** Keys that have acted, by their ids. */
const keys = new Map();

const rows = new KeyedRows(byId("events").querySelector("tbody"), { getKey: (event) => event.id, make, fill });

function readAddress() {
  const query = new URLSearchParams(location.search);
  for (const name of TEXTS) form.elements[name].value = query.get(name) ?? "";
  for (const name of TIMES) form.elements[name].value = toLocal(query.get(name));
}

/** Format a time for a field, which has it in the time zone of the browser. */
function toLocal(text) {
  const time = new Date(text ?? NaN);
  return Number.isNaN(time.valueOf()) ? "" : new Date(time - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function makeQuery() {
  const values = [
    ...TEXTS.map((name) => [name, form.elements[name].value.trim()]),
    ...TIMES.map((name) => [name, form.elements[name].value && new Date(form.elements[name].value).toISOString()]),
  ];
  return new URLSearchParams(values.filter(([, value]) => value));
}

async function read() {
  const query = makeQuery();
  const text = query.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
  query.set("limit", PAGE_SIZE);
  if (await pages.open(query)) await show();
}

async function readOlder() {
  if (await pages.readOn()) await show();
}

/** Read the names of the keys of these events, as far as they are not known. */
async function readKeys(events) {
  const unknown = [...new Set(events.map((event) => event.key_id))].filter((id) => id && !keys.has(id));
  for (let first = 0; first < unknown.length; first += PAGE_SIZE / 2) {
    const query = new URLSearchParams(unknown.slice(first, first + PAGE_SIZE / 2).map((id) => ["id", id]));
    for (const key of (await get(`/v1/keys?${query}&limit=200`)).items) keys.set(key.id, key);
  }
}

async function show() {
  await readKeys(pages.items);
  const { items: events } = pages;
  rows.show(events);
  byId("events").hidden = events.length === 0;
  byId("none").hidden = events.length > 0;
  byId("older").hidden = pages.next === null;
  byId("csv").hidden = events.length === 0;
  byId("content").hidden = false;
}

function make(event) {
  const page = findPage(event);
  const target = page ? element("a", { href: page }, event.target) : event.target;
  const parts = { key: element("small") };
  parts.row = element(
    "tr",
    {},
    element("td", { class: "time" }, element("time", { datetime: event.time }, preciseTime(event.time))),
    element("th", { scope: "row" }, describeActor(event), parts.key),
    element("td", { class: "what" }, describeAction(event), element("small", {}, event.action)),
    element("td", { "data-label": "Target" }, ...(event.target ? [element("small", { class: "id" }, target)] : [])),
    element("td", { "data-label": "From" }, ...(event.address ? [event.address, element("small", { class: "id" }, event.request_id)] : [])),
  );
  return parts;
}

function fill(parts, event) {
  parts.key.textContent = keyName(event) && `key ${keyName(event)}`;
}

const keyName = (event) => keys.get(event.key_id)?.name ?? event.key_id ?? "";

function save() {
  const head = ["time", "actor", "key", "key_id", "action", "in words", "target", "address", "request_id", "details"];
  const cells = pages.items.map((event) => [
    ...[event.time, event.actor, keyName(event), event.key_id, event.action, describeAction(event), event.target],
    ...[event.address, event.request_id, JSON.stringify(event.details)],
  ]);
  saveCsv(`audit-${new Date().toISOString().slice(0, 10)}.csv`, [head, ...cells]);
}

function attempt(work) {
  byId("trouble").hidden = true;
  work().catch((error) => {
    byId("trouble").hidden = false;
    byId("trouble").textContent = listFaults(error).map((fault) => fault.filter(Boolean).join(": ")).join("; ");
  });
}

async function start() {
  const me = await startHeader();
  if (me.role !== "admin") {
    byId("refused-who").textContent = `${me.owner}, with the role ${me.role}`;
    byId("refused").hidden = false;
    return;
  }
  form.elements.action.append(...Object.entries(ACTIONS).map(([name, [title]]) => element("option", { value: name }, title)));
  readAddress();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(read);
  });
  form.elements.action.addEventListener("change", () => attempt(read));
  byId("clear").addEventListener("click", () => {
    for (const name of [...TEXTS, ...TIMES]) form.elements[name].value = "";
    attempt(read);
  });
  byId("older").addEventListener("click", () => attempt(readOlder));
  byId("csv").addEventListener("click", save);
  await read();
}

attempt(start);
