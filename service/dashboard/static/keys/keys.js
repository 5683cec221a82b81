// Page of the keys: all for admins, who make and revoke them; for others those of their owner.
import { byId } from "../common/elements.js";
import { startHeader } from "../common/header.js";
import { Pages } from "../common/pages.js";
import { showTrouble } from "../common/trouble.js";
import { startForm } from "./create.js";
import { confirmAndRevoke } from "./revoke.js";
import { KeyTable } from "./table.js";

const PAGE_SIZE = 50;
const SEARCH_MILLISECONDS = 250;
const FILTERS = ["q", "role", "state"];
const DEFAULTS = { q: "", role: "", state: "valid" };
const ANY = "any";

const pages = new Pages("/v1/keys");
let table = null;

/** Fill the filters from the address, where an absent one has its default. */
function readAddress() {
  const query = new URLSearchParams(location.search);
  for (const name of FILTERS) byId(name).value = query.get(name) ?? DEFAULTS[name];
}

function writeAddress() {
  const changed = FILTERS.filter((name) => byId(name).value !== DEFAULTS[name]).map((name) => [name, byId(name).value]);
  const query = new URLSearchParams(changed).toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
}

async function read() {
  const query = new URLSearchParams({ order: "newest", limit: PAGE_SIZE });
  for (const name of FILTERS) {
    const value = byId(name).value.trim();
    if (value && value !== ANY) query.set(name, value);
  }
  await show(pages.open(query));
}

/** Show all keys that were read once a request is answered. */
async function show(request) {
  try {
    if (!(await request)) return;
    byId("trouble").hidden = true;
  } catch (error) {
    showTrouble(error);
  }
  table.show(pages.items);
  byId("more").hidden = pages.next === null;
  byId("none").hidden = pages.items.length > 0;
  byId("content").hidden = false;
}

async function revoke(key, ownKeyId) {
  try {
    if (await confirmAndRevoke(key, ownKeyId)) await read();
  } catch (error) {
    showTrouble(error);
  }
}

async function start() {
  const me = await startHeader();
  const isAdmin = me.role === "admin";
  table = new KeyTable(isAdmin ? (key) => revoke(key, me.key_id) : null, me.key_id);
  byId("new-key").hidden = !isAdmin;
  byId("whose").textContent = isAdmin ? "of all owners" : `of ${me.owner}; an admin makes and revokes keys`;
  if (isAdmin) startForm(read);
  readAddress();
  let timer = null;
  const change = (delay) => {
    writeAddress();
    clearTimeout(timer);
    timer = setTimeout(read, delay);
  };
  byId("q").addEventListener("input", () => change(SEARCH_MILLISECONDS));
  for (const name of ["role", "state"]) byId(name).addEventListener("change", () => change(0));
  byId("more").addEventListener("click", () => show(pages.readOn()));
  await read();
}

start().catch(showTrouble);
