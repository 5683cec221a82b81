// Page of all jobs: what it shows is the query of its address, so that links, reloads and the way back work.
import { byId } from "../common/elements.js";
import { showCapacity, startHeader } from "../common/header.js";
import { ALL, Updates } from "../common/updates.js";
import { Bulk } from "./bulk.js";
import { showChips } from "./chips.js";
import { Facets } from "./facets.js";
import { JobPage } from "./list.js";
import { formatQuery, isFiltered, parseQuery, readLabel, streamParams } from "./query.js";
import { Rows, showTotal } from "./rows.js";
import { Selection } from "./selection.js";
import { Views } from "./views.js";

const CLOCK_MILLISECONDS = 10_000;
const TYPING_MILLISECONDS = 250;
const table = byId("jobs");
const search = byId("search");
const page = new JobPage();
const views = new Views();
const selection = new Selection(table, showJobs);
const rows = new Rows(table, selection);
const bulk = new Bulk(selection);
const facets = new Facets((found) => {
  table.toggleAttribute("data-owners", found.owners.length > 1);
  showTotal(found, page.query);
});
let isCapacityOld = true;
let areFacetsOld = true;

/** Ids that the pages before this one begin after, from the first page on; empty on the first page. */
const getTrail = () => history.state?.trail ?? [];

/** Show what the address says. */
function open() {
  const query = parseQuery(location.search);
  page.open(query);
  areFacetsOld = true;
  if (search.value.trim() !== query.q.trim()) search.value = query.q;
  showChips(query);
  views.show(query);
}

/** Go to another query. trail: see `getTrail`; isNew: whether the way back leads to the present one. */
function go(address, { trail = [], isNew = true } = {}) {
  history[isNew ? "pushState" : "replaceState"]({ trail }, "", address);
  if (updates.isOver) location.reload();
  open();
  updates.restart();
}

function showJobs() {
  const jobs = page.list();
  selection.note(jobs);
  rows.show(jobs, page.query);
  bulk.show();
  const isNarrowed = isFiltered(page.query) || page.query.before !== "";
  table.parentElement.hidden = jobs.length === 0;
  byId("empty").hidden = jobs.length > 0 || isNarrowed;
  byId("nothing").hidden = jobs.length > 0 || !isNarrowed;
  const labelled = readLabel(page.query);
  byId("as-label").hidden = labelled === null;
  if (labelled) byId("as-label").href = formatQuery(labelled);
  byId("browse").hidden = !byId("empty").hidden;
  showPager(jobs);
}

function showPager(jobs) {
  const { query } = page;
  const trail = getTrail();
  const [newer, older] = [byId("newer"), byId("older")];
  newer.hidden = !query.before;
  newer.textContent = trail.length || !query.before ? "← Newer" : "← Newest";
  newer.href = formatQuery({ ...query, before: trail.at(-1) ?? "" });
  newer.dataset.trail = trail.slice(0, -1).join(" ");
  older.hidden = !page.hasOlder;
  older.href = formatQuery({ ...query, before: jobs.at(-1)?.id ?? "" });
  older.dataset.trail = [...trail, query.before].join(" ");
  byId("place").textContent = query.before && trail.length ? `Page ${trail.length + 1}` : "";
}

async function update(changed) {
  if (changed.has(ALL) || changed.has("reset") || page.hasRoom) {
    if (!(await page.read())) return;
    isCapacityOld = true;
    if (!areFacetsOld) facets.note();
  }
  showJobs();
  byId("page").hidden = false;
  // Before each wait: meanwhile another query may be opened, or a job may change.
  if (areFacetsOld) {
    areFacetsOld = false;
    await facets.open(page.query).catch(lookAgain);
  }
  if (isCapacityOld) {
    isCapacityOld = false;
    await showCapacity().catch(lookAgain);
  }
}

/** Note that what was not read is still to be read. */
function lookAgain(error) {
  areFacetsOld = isCapacityOld = true;
  throw error;
}

function take(name, content) {
  if (!page.take(name, content)) return;
  isCapacityOld = true;
  facets.note();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-query]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  const isPager = "trail" in link.dataset;
  go(link.getAttribute("href"), { trail: isPager && link.search.includes("before=") ? link.dataset.trail.split(" ") : [] });
  if (isPager) window.scrollTo(0, 0);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, textarea, select, dialog")) return;
  event.preventDefault();
  search.focus();
});
window.addEventListener("popstate", () => {
  open();
  updates.restart();
});
let typing = null;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const isSame = search.value.trim() === page.query.q.trim();
    if (!isSame) go(formatQuery({ ...page.query, q: search.value, before: "" }), { isNew: page.query.q === "" });
  }, TYPING_MILLISECONDS);
});
byId("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const labelled = readLabel({ ...page.query, q: search.value });
  if (labelled) go(formatQuery(labelled));
});
byId("show-facets").addEventListener("click", () => {
  const isOpen = byId("facets").toggleAttribute("data-open");
  byId("show-facets").setAttribute("aria-expanded", isOpen);
});

byId("service-url").textContent = location.origin;
open();
startHeader().then((me) => bulk.allow(me.role));
// Ages and times to a restart grow without a message.
setInterval(() => page.jobs.size && rows.show(page.list(), page.query), CLOCK_MILLISECONDS);
const path = () => `/v1/stream?${streamParams(page.query)}`;
const updates = new Updates(update, { path, names: ["job", "gone", "reset"], take });
