// What a job asks for and what its plan needs of that, beside what the machine has.
import { get } from "../common/api.js";
import { element } from "../common/elements.js";
import { count, integer, percent } from "../common/format.js";
import { chooseSizeFormat, sumPlannedBytes } from "../plan/plan.js";
import { refill, setText, showFacts } from "./rows.js";

let capacities = null;

/** Fill the panel of resources. plan: event of the plan; undefined until there is one. */
export async function showResources(panel, job, plan) {
  capacities ??= (await get("/v1/capacity")).launchers;
  const capacity = capacities[job.launcher] ?? {};
  panel.hidden = false;
  const { nodes, workers_per_node: workers, threads_per_worker: threads, memory, gpus_per_worker: gpus } = job.spec.resources;
  const size = chooseSizeFormat(memory);
  const meters = [
    { name: "Cores", asked: workers * threads * job.num_nodes, all: capacity.num_cores, format: integer },
    { name: "Memory", asked: memory * job.num_nodes, all: capacity.memory_bytes, format: size },
    { name: "GPUs", asked: gpus * workers * job.num_nodes, all: capacity.num_gpus, format: integer },
  ].filter(({ asked }) => asked > 0);
  refill(panel.querySelector(".meters"), meters, ({ name }) => name, fillMeter, "div");
  const where = job.launcher === "local" ? "this machine" : job.launcher;
  const range = typeof nodes === "number" ? integer(nodes) : `${nodes}`.replaceAll(",", " to ");
  showFacts(panel.querySelector("dl"), [
    ["Runs on", job.num_nodes > 1 || typeof nodes !== "number" ? `${where}, ${range} nodes` : where],
    ["Workers", `${count(job.world_size, "rank")} with ${count(threads, "thread")} each`],
    ["Planned", plan?.details.memory_bytes ? describePlanned(plan.details) : null],
    ["Image", job.image],
  ]);
}

/** Say how much of the memory the plan fills, for the fullest machine or GPU. */
function describePlanned(plan) {
  const size = chooseSizeFormat(plan.memory_bytes);
  const planned = Math.max(...sumPlannedBytes(plan));
  const share = percent(planned / plan.memory_bytes);
  return `${size(planned)} of ${size(plan.memory_bytes)} (${share}) for tables, their state and buffers`;
}

function fillMeter(row, { name, asked, all, format }) {
  if (!row.children.length) {
    const meter = element("meter", { min: 0, "aria-label": `${name} asked for` });
    row.append(element("span"), element("span"), meter);
  }
  const [title, text, meter] = row.children;
  setText(title, name);
  // A cluster need not tell what it has.
  setText(text, all ? `${format(asked)} of ${format(all)}` : format(asked));
  meter.hidden = !all;
  meter.max = all || 1;
  meter.value = asked;
}

/** Fill the list of where the files of a job are, for people who have access to the machine itself. */
export function showPlaces(details, job, attempts) {
  const code = (text) => (text ? element("code", {}, text) : null);
  const isElsewhere = job.launcher !== "local";
  const facts = [
    ["Launcher", isElsewhere ? job.launcher : null],
    ["Nodes", isElsewhere ? attempts.findLast((attempt) => attempt.node)?.node : null],
    ["Run directory", code(job.files_at)],
    ["Model", code(job.model_path)],
  ];
  details.hidden = !job.num_attempts;
  showFacts(details.querySelector("dl"), facts);
}
