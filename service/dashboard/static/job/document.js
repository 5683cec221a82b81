// Tab of the document of a job: how to run it again, what differs from the defaults, what was decided, and all of it.
import { get } from "../common/api.js";
import { makeCopyButton } from "../common/copy.js";
import { byId, element } from "../common/elements.js";
import { integer } from "../common/format.js";
import { showDerived } from "../plan/derived.js";
import { chooseSizeFormat } from "../plan/plan.js";
import { listDifferences, shorten } from "./defaults.js";
import { makeCurl, makePython, makeSubmit, toToml } from "./document_text.js";
import { EventStore } from "./event_store.js";
import { path, startJob } from "./frame.js";

const DECIDED = "decided";
const events = new EventStore(path, [DECIDED]);
let schema = null;
let job = null;
let shown = "";

function showDifferences(differences) {
  byId("differences").hidden = false;
  byId("num-differences").textContent = integer(differences.length);
  byId("differences").querySelector("tbody").replaceChildren(...differences.map(makeRow));
}

function makeRow({ path, value, default: usual, meaning }) {
  const name = path.flatMap((part, index) => (index ? [element("wbr"), `.${part}`] : [part]));
  const usualText = usual === undefined ? "must be stated" : element("code", {}, valueText(usual, path));
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, ...name),
    element("td", {}, element("code", {}, valueText(value, path))),
    element("td", {}, usualText),
    element("td", {}, meaning),
  );
}

function valueText(value, path) {
  if (path.at(-1) === "memory" && typeof value === "number") return chooseSizeFormat(value)(value);
  return typeof value === "string" ? value || '""' : JSON.stringify(value);
}

/** Show the document in the chosen form. */
function showText() {
  const form = document.querySelector("input[name=form]:checked").value;
  byId("document").textContent = form === "toml" ? toToml(job.spec, schema) : JSON.stringify(job.spec, null, 2);
}

/** Show what submits the same document, in the chosen way. */
function showAgain() {
  const short = shorten(listDifferences(job.spec, schema));
  const toml = toToml(short, schema);
  const make = {
    curl: () => makeCurl(toml, location.origin),
    submit: () => makeSubmit(toml, location.origin),
    python: () => makePython(short, location.origin),
  };
  byId("again").textContent = make[document.querySelector("input[name=way]:checked").value]();
}

function filterDecisions() {
  const wanted = byId("wanted").value.toLowerCase();
  for (const row of byId("derived").tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

async function update(now) {
  schema ??= await get("/v1/schema");
  job = now;
  const decisions = events.findLast(DECIDED)?.details.decisions ?? [];
  const content = JSON.stringify([job.spec, job.derived, decisions]);
  // Only then: texts that somebody selects stay.
  if (content === shown) return;
  shown = content;
  showDifferences(listDifferences(job.spec, schema));
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
