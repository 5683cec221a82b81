// What the service would decide for a job document: the answer of POST /v1/plans.
import { showDerived } from "../plan/derived.js";
import { element, showTiles } from "../common/elements.js";
import { duration, integer, isKnown, UNKNOWN } from "../common/format.js";
import { stagesText } from "../common/state.js";
import { findBatch } from "../plan/batch.js";
import { chooseSizeFormat, showPlan } from "../plan/plan.js";

const byId = (id) => document.getElementById(id);

export function showCheck(answer) {
  byId("before").hidden = true;
  byId("result").hidden = false;
  byId("verdict").textContent = describeFit(answer);
  byId("verdict").dataset.fits = answer.fits.ever ? "yes" : "no";
  showList(byId("faults"), answer.fits.ever ? [] : answer.fits.why.map(describeFault));
  showList(byId("warnings"), answer.warnings ?? []);
  showList(byId("notes"), [...(answer.unknown_sizes ? [answer.unknown_sizes] : []), ...(answer.notes ?? [])]);
  showTiles(byId("tiles"), listTiles(answer));
  showDerived(byId("derived"), answer.decisions, answer.derived);
  byId("plan").hidden = true;
  showPlan(byId("plan"), { details: answer.plan && convertPlan(answer.plan) });
}

/** Make the parts of a list item on a field at fault; the field is empty where the document as a whole is. */
export const describeFault = ({ field, message, valid }) => [
  ...(field ? [element("code", {}, field), " "] : []),
  message,
  ...(valid ? [element("small", {}, `valid: ${valid}`)] : []),
];

/** Fill a list with texts or arrays of parts; hide it without any. */
export function showList(list, items) {
  list.hidden = items.length === 0;
  list.replaceChildren(...items.map((item) => element("li", {}, ...[item].flat())));
}

function describeFit({ fits }) {
  if (fits.now) return "The job fits, and would start at once.";
  const why = fits.why.map(({ message }) => message).join("; ");
  return fits.ever ? `The job fits, and would wait: ${why}` : "The job cannot run like this:";
}

function listTiles(answer) {
  const { document: spec, memory, num_samples, num_steps, plan, training_seconds } = answer;
  const size = chooseSizeFormat(memory.asked_bytes);
  const batch = findBatch({ spec, derived: answer.derived, progress: {} });
  const planned = isKnown(memory.planned_bytes) ? size(memory.planned_bytes) : UNKNOWN;
  // Smaller batches are slower.
  const atLast = isKnown(findFirst(answer.derived)) ? ` at ${integer(batch)}` : "";
  const samplesPerSecond = plan?.step.is_dense_known
    ? `estimated, about ${integer(plan.step.samples_per_second)} samples/s${atLast}`
    : "";
  const length = isKnown(num_samples) ? `${integer(num_samples)} samples` : "decided by the rows, once they are read";
  return [
    ["Batch", integer(batch), describeBatch(answer, batch)],
    ["Steps", integer(num_steps), length],
    ["Training", duration(training_seconds), samplesPerSecond],
    ["Memory", planned, `of ${size(memory.asked_bytes)}`],
  ];
}

function describeBatch({ document: { batch: { schedule, growth } }, derived }, batch) {
  const first = findFirst(derived);
  if (growth) return `grows from ${integer(growth.start_size)} by the noise scale`;
  if (Array.isArray(schedule) && schedule.length) return stagesText([...schedule, { global_size: batch }]);
  if (isKnown(first)) return `grows from ${integer(first)}`;
  return isKnown(batch) ? "samples a step" : "decided by the rows, once they are read";
}

/** Find the size that a batch grows from; undefined where it does not grow. */
function findFirst(derived) {
  return derived.find(({ name }) => name === "first_global_size")?.value;
}

/** Convert a plan to the form of the event that a run reports. */
function convertPlan({ tables, ranks, topology, step, ...plan }) {
  return {
    ...plan,
    tables: Object.fromEntries(tables.map((table) => [table.name, table])),
    weight_bytes: ranks.map((rank) => rank.weight_bytes),
    optimizer_bytes: ranks.map((rank) => rank.optimizer_bytes),
    buffer_bytes: ranks.map((rank) => Object.values(rank.buffer_bytes).reduce((total, bytes) => total + bytes, 0)),
    ranks_per_memory: topology.device === "cpu" ? topology.ranks_per_node : 1,
    imbalance: plan.imbalance_of_bytes,
    imbalance_of_seconds: plan.imbalance,
    step_seconds: step.parts,
    is_dense_known: step.is_dense_known,
  };
}
