// What each launcher has, in use and free, and each of its machines if their names are known.
import { byId, element } from "../common/elements.js";
import { count } from "../common/format.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { RESOURCES, fillBar, makeBar } from "./amounts.js";

const TITLES = { local: "This machine", kubernetes: "Kubernetes cluster" };
const UNKNOWN =
  "The service does not know what is free here: it may not see the nodes, or a queue of Kueue decides which job starts.";

export const launcherTitle = (name) => TITLES[name] ?? name;

const launchers = new KeyedRows(byId("launchers"), { getKey: ([name]) => name, make: makeLauncher, fill: fillLauncher });
const machines = new KeyedRows(byId("machines").querySelector("tbody"), {
  getKey: (node) => `${node.launcher} ${node.name}`,
  make: makeMachine,
  fill: fillMachine,
});

/** Show capacities by launcher, and their machines by name. */
export function showMachines(capacity, nodes) {
  const shown = Object.entries(capacity.launchers).map(([name, one]) => [
    name,
    one,
    nodes.filter((node) => node.launcher === name).length,
  ]);
  launchers.show(shown);
  machines.show(nodes);
  byId("machines").hidden = nodes.length === 0;
}

function makeLauncher([name]) {
  const parts = { bars: new Map(), machines: element("small"), unknown: element("p", { class: "hint" }, UNKNOWN) };
  for (const { name: field, title } of RESOURCES) parts.bars.set(field, makeBar(title));
  parts.row = element(
    "section",
    { class: "card launcher", "aria-label": launcherTitle(name) },
    element("h2", {}, launcherTitle(name), " ", parts.machines),
    ...[...parts.bars.values()].map(({ row }) => row),
    parts.unknown,
  );
  return parts;
}

function fillLauncher(parts, [name, capacity, numNodes]) {
  const isKnown = capacity.num_cores !== null;
  parts.machines.textContent = name === "local" ? "launcher local, one machine" : numNodes ? count(numNodes, "machine") : "";
  parts.unknown.hidden = isKnown;
  for (const resource of RESOURCES) {
    const bar = parts.bars.get(resource.name);
    const total = capacity[resource.name];
    // Machines without GPUs have no bar of them.
    bar.row.hidden = !isKnown || (resource.name === "num_gpus" && !total);
    if (!bar.row.hidden) fillBar(bar, resource, total - capacity[`${resource.name}_free`], total);
  }
}

function makeMachine(node) {
  const parts = { bars: new Map() };
  const cells = RESOURCES.map(({ name, title }) => {
    const bar = { words: element("span"), bar: element("progress", { "aria-label": `${title} in use on ${node.name}` }) };
    parts.bars.set(name, bar);
    return element("td", { class: name === "num_gpus" ? "gpu" : "" }, bar.words, bar.bar);
  });
  parts.row = element("tr", {}, element("th", { scope: "row" }, node.name), ...cells);
  return parts;
}

function fillMachine(parts, node) {
  for (const { name, number, format } of RESOURCES) {
    const { words, bar } = parts.bars.get(name);
    const [used, total] = [node[`${name}_used`], node[name]];
    words.textContent = total ? `${number(used)} of ${format(total)}` : "none";
    bar.hidden = !total;
    bar.max = Math.max(total, 1);
    bar.value = Math.min(used, total);
    bar.toggleAttribute("data-full", total > 0 && used >= total);
  }
}
