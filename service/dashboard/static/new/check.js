// What the service would decide for a job document: the answer of POST /v1/plans.
import { X } from "../charts/axes.js";
import { Chart } from "../charts/chart.js";
import { byId, element, showTiles } from "../common/elements.js";
import { count, duration, figure, integer, isKnown, UNKNOWN } from "../common/format.js";
import { stagesText } from "../common/state.js";
import { findBatch } from "../plan/batch.js";
import { showDerived } from "../plan/derived.js";
import { chooseSizeFormat, showPlan } from "../plan/plan.js";

const VERDICTS = { now: "Fits now", later: "Would wait", never: "Cannot run" };
/** What stands along a chart of a run whose steps are not known. */
const PERCENT = { ...X.step, name: "% of the run", title: "% of the run" };
const charts = {};

/** Show the answer of a plan. holders: jobs that run now. onField: called with the path of a field to be mended. */
export function showCheck(answer, holders, onField) {
  const { fits } = answer;
  const verdict = fits.now ? "now" : fits.ever ? "later" : "never";
  byId("before").hidden = true;
  byId("result").hidden = false;
  byId("verdict").replaceChildren(element("strong", {}, VERDICTS[verdict]), " ", describeFit(answer));
  byId("verdict").dataset.fits = verdict;
  showList(byId("faults"), fits.ever ? [] : fits.why.map((fault) => describeFault(fault, onField)));
  showList(byId("holders"), verdict === "later" ? holders.map(describeHolder) : []);
  showList(byId("warnings"), answer.warnings ?? []);
  showList(byId("notes"), [...(answer.unknown_sizes ? [answer.unknown_sizes] : []), ...(answer.notes ?? [])]);
  showTiles(byId("tiles"), listTiles(answer));
  showDerived(byId("derived"), answer.decisions, answer.derived);
  showRates(answer);
  byId("plan").hidden = true;
  byId("plan").open = true;
  showPlan(byId("plan"), { details: answer.plan && convertPlan(answer.plan) });
}

/** Make the parts of a list item on a field at fault; the field is empty where the document as a whole is. */
export function describeFault({ field, message, valid }, onField = null) {
  const name = onField ? element("button", { type: "button", class: "link", title: "Go to this field" }, field) : element("code", {}, field);
  if (onField) name.addEventListener("click", () => onField(field.split(".")));
  return [...(field ? [name, " "] : []), message, ...(valid ? [element("small", {}, `valid: ${valid}`)] : [])];
}

function describeHolder({ id, name, owner, progress }) {
  const left = isKnown(progress.eta_seconds) ? `, ${duration(progress.eta_seconds)} left` : "";
  return [element("a", { href: `/jobs/${encodeURIComponent(id)}` }, name), ` of ${owner} runs now${left}`];
}

/** Fill a list with texts or arrays of parts; hide it without any. */
export function showList(list, items) {
  list.hidden = items.length === 0;
  list.replaceChildren(...items.map((item) => element("li", {}, ...[item].flat())));
}

function describeFit({ fits }) {
  if (fits.now) return "The job would start at once.";
  const why = fits.why.map(({ message }) => message).join("; ");
  return fits.ever ? `The job fits, and would wait: ${why}` : "What stands in the way, and what would be valid:";
}

function listTiles(answer) {
  const { document: spec, memory, num_samples, num_steps, plan, training_seconds } = answer;
  const size = chooseSizeFormat(memory.asked_bytes);
  const batch = findBatch({ spec, derived: answer.derived, progress: {} });
  const planned = isKnown(memory.planned_bytes) ? size(memory.planned_bytes) : UNKNOWN;
  // Smaller batches are slower.
  const atLast = isKnown(findFirst(answer.derived)) ? ` at ${integer(batch)}` : "";
  const samplesPerSecond = plan?.step.is_dense_known
    ? `estimated, about ${integer(plan.step.samples_per_second)} samples/s${atLast}, without the load of others`
    : "";
  const length = isKnown(num_samples) ? `${integer(num_samples)} samples` : "decided by the rows, once they are read";
  return [
    ["Batch", integer(batch), describeBatch(answer, batch)],
    ["Steps", integer(num_steps), length],
    ["Training", duration(training_seconds), samplesPerSecond],
    describeCost(spec.resources, training_seconds),
    ["Memory", planned, `of ${size(memory.asked_bytes)} ${spec.resources.gpus_per_worker ? "of each GPU" : "on each machine"}`],
  ];
}

/** Describe what a run occupies, as a tile: hours of cores, or of GPUs. */
function describeCost({ nodes, workers_per_node, threads_per_worker, gpus_per_worker }, seconds) {
  const machines = typeof nodes === "number" ? nodes : nodes.max;
  const unit = gpus_per_worker ? "GPU" : "core";
  const number = machines * workers_per_node * (gpus_per_worker || threads_per_worker);
  const hours = isKnown(seconds) ? (number * seconds) / 3600 : null;
  const value = hours === null ? UNKNOWN : hours < 10 ? String(Number(hours.toPrecision(2))) : integer(hours);
  return [`${unit === "GPU" ? "GPU" : "Core"}-hours`, value, `${count(number, unit)} while it trains`];
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

/** Draw the learning rates over the steps of the run; over a hundred points of it where the steps are not known. */
function showRates({ learning_rates: points, num_samples, num_steps }) {
  const isLong = isKnown(num_samples) && isKnown(num_steps) && num_steps >= points.length;
  let done = 0;
  const steps = points.map(({ global_size }, index) => {
    done += num_samples / points.length / global_size;
    return isLong ? Math.round(done) : index + 1;
  });
  byId("rates").hidden = false;
  byId("rates-axis").textContent = isLong ? "over the steps" : "in percent of the run";
  for (const [name, colour] of [["dense", "--series-1"], ["table", "--series-2"]]) {
    charts[name] ??= new Chart(byId(`rates-${name}`), [{ label: "learning rate", colour }], { format: figure });
    charts[name].change({ x: isLong ? X.step : PERCENT });
    charts[name].show([steps, points.map((point) => point[name])], steps.at(-1));
  }
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
