// Tab of the document of a job: how to run it again, what differs from the defaults, what was decided, and all of it.
import { get } from "../common/api.js";
import { makeCopyButton } from "../common/copy.js";
import { breakName, byId, element } from "../common/elements.js";
import { integer } from "../common/format.js";
import { showDerived } from "../plan/derived.js";
import { makeCurl, makePython, makeSubmit } from "./document_text.js";
import { EventStore } from "./event_store.js";
import { path, startJob } from "./frame.js";

const DECIDED = "decided";
const events = new EventStore(path, [DECIDED]);
let job = null;
/** Shortest document of the job, as the service makes it. */
let short = null;
let shown = "";

function showDifferences(differences) {
  byId("differences").hidden = false;
  byId("num-differences").textContent = integer(differences.length);
  byId("differences").querySelector("tbody").replaceChildren(...differences.map(makeRow));
}

function makeRow({ field, value, default: usual, meaning }) {
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, ...breakName(field)),
    element("td", {}, element("code", {}, valueText(value))),
    element("td", {}, element("code", {}, valueText(usual))),
    element("td", {}, meaning),
  );
}

const valueText = (value) => (typeof value === "string" ? value || '""' : JSON.stringify(value));

/** Show the document in the chosen form. */
function showText() {
  const form = document.querySelector("input[name=form]:checked").value;
  byId("document").textContent = form === "toml" ? short.toml : JSON.stringify(job.spec, null, 2);
}

/** Show what submits the same document, in the chosen way. */
function showAgain() {
  const make = {
    curl: () => makeCurl(short.toml, location.origin),
    submit: () => makeSubmit(short.toml, location.origin),
    python: () => makePython(short.document, location.origin),
  };
  byId("again").textContent = make[document.querySelector("input[name=way]:checked").value]();
}

function filterDecisions() {
  const wanted = byId("wanted").value.toLowerCase();
  for (const row of byId("derived").tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

async function update(now) {
  const decisions = events.findLast(DECIDED)?.details.decisions ?? [];
  const content = JSON.stringify([now.spec, now.derived, decisions]);
  // Only then: texts that somebody selects stay.
  if (content === shown) return;
  short ??= await get(`${path}/document`);
  job = now;
  shown = content;
  showDifferences(short.differences);
  showDerived(byId("derived"), decisions, job.derived);
  filterDecisions();
  showAgain();
  showText();
}

for (const radio of document.querySelectorAll("input[name=form]")) radio.addEventListener("change", showText);
for (const radio of document.querySelectorAll("input[name=way]")) radio.addEventListener("change", showAgain);
byId("wanted").addEventListener("input", filterDecisions);
makeCopyButton(byId("copy-document"), () => byId("document").textContent);
makeCopyButton(byId("copy-again"), () => byId("again").textContent);
startJob({ update, names: ["event"], events });
