// Documents to begin with: texts that the service has, and the documents of earlier jobs.
import { get, request } from "../common/api.js";
import { splitQuantity } from "./schema.js";
import { changeText, isEqual, writeText } from "./text.js";

/** Fields whose defaults depend on a name beside them, or on the preset. */
const WITH_OWN_DEFAULTS = ["dense_optimizer", "table_optimizer"];

/** Read the text of a starting point. */
export async function readStart(name) {
  const response = await fetch(new URL(`starts/${name}.toml`, import.meta.url));
  return response.text();
}

/** List the newest jobs with a model. */
export const listTrained = async () => (await get("/v1/jobs?state=SUCCEEDED&limit=50")).items;

/** Read a job and its document as text: what differs from the defaults. root: node of the schema. */
export async function readJob(id, root, maySubmit) {
  const job = await get(`/v1/jobs/${encodeURIComponent(id)}`);
  const base = maySubmit ? await findDefaults(job.spec) : null;
  return { job, text: writeText(dropDefaults(job.spec, root, base)) };
}

/** Return the document of a job, as text, that goes on from the model of that job. */
export const retrain = (text, id) => changeText(text, ["run", "warm_start"], { from: id });

/** Ask for the defaults beside the names of a document; null if they are not known. */
async function findDefaults({ data, resources, preset, dense_optimizer, table_optimizer }) {
  const names = { dense_optimizer: { name: dense_optimizer.name }, table_optimizer: { name: table_optimizer.name } };
  try {
    return (await request("POST", "/v1/documents", { data, resources, preset, ...names })).document;
  } catch {
    return null;
  }
}

function dropDefaults(spec, root, base) {
  const preset = new Set(spec.preset ? spec.filled_by_preset : []);
  const document = dropIn(spec, root, preset, (node) => {
    const [section, name] = node.path;
    const isOwn = WITH_OWN_DEFAULTS.includes(section) && name !== "name";
    return base && isOwn ? node.path.reduce((value, part) => value?.[part], base) : node.default;
  });
  return { name: spec.name, ...document };
}

/** Return what differs from the defaults in a table; TOML has no null, so that it is left out where false is not it. */
function dropIn(value, node, preset, getDefault) {
  const kept = {};
  for (const field of node.fields) {
    const own = value[field.name];
    const standard = getDefault(field);
    const path = field.path.join(".");
    if (own === undefined || preset.has(path)) continue;
    if (isEqual(own, standard) && !(field.name === "name" && preset.size)) continue;
    if (own === null) {
      if (field.kind === "group" && standard !== null) kept[field.name] = false;
      continue;
    }
    const written = writeValue(own, field, preset, getDefault);
    // An empty table that is null by default turns something on.
    if (!isEmptyTable(written) || standard === null) kept[field.name] = written;
  }
  return kept;
}

function writeValue(value, field, preset, getDefault) {
  const option = field.options?.find(({ kind }) => (typeof value === "object") === ["group", "entries", "numbers"].includes(kind)) ?? field;
  if (option.kind === "group" && option.fields && !Array.isArray(value)) return dropIn(value, option, preset, getDefault);
  if (option.kind === "entries" && Array.isArray(value)) {
    return value.map((item, index) => dropIn(item, option.makeItem(index), preset, getDefault));
  }
  if (option.isText) return splitQuantity(value, option.units).join("").replace("bytes", "");
  return option.kind === "other" ? dropNulls(value) : value;
}

const isEmptyTable = (value) => typeof value === "object" && !Array.isArray(value) && Object.keys(value).length === 0;

const dropNulls = (value) =>
  value === null || typeof value !== "object" || Array.isArray(value)
    ? value
    : Object.fromEntries(Object.entries(value).filter(([, inner]) => inner !== null).map(([name, inner]) => [name, dropNulls(inner)]));
