// Plan of the tables: their ranks, the memory of each rank, and the seconds of a step by part.
import { element } from "../common/elements.js";
import { binarySize, fileSize, integer } from "../common/format.js";

const MAX_TABLES = 100;
const MAX_RANKS = 64;

/** Fill `details` and show it; it stays hidden without a plan. stepParts: event of measured seconds, or undefined. */
export function showPlan(details, event, stepParts) {
  const plan = event?.details;
  if (!plan?.memory_bytes) return;
  details.hidden = false;
  const [facts, hint] = details.querySelectorAll(".hint");
  const [tables, ranks, steps] = details.querySelectorAll("tbody");
  const size = chooseSizeFormat(plan.memory_bytes);
  facts.textContent = describePlan(plan, size);
  const tableEntries = Object.entries(plan.tables);
  tables.replaceChildren(
    ...tableEntries.slice(0, MAX_TABLES).map(([name, table]) =>
      row(name, table.type.replaceAll("_", " "), table.ranks.join(", ")),
    ),
  );
  const numHiddenTables = tableEntries.length - MAX_TABLES;
  if (numHiddenTables > 0) tables.append(row(`and ${integer(numHiddenTables)} more`, "", ""));
  const rankMemory = plan.weight_bytes.map((weights, rank) => [
    weights, plan.optimizer_bytes[rank], plan.buffer_bytes[rank],
  ]);
  ranks.replaceChildren(
    ...rankMemory.slice(0, MAX_RANKS).map((parts, rank) => {
      const total = sum(parts);
      const cells = [...parts, total].map((bytes) => number(size(bytes)));
      return row(`rank ${rank}`, bar(total / plan.memory_bytes), ...cells);
    }),
  );
  const numHiddenRanks = rankMemory.length - MAX_RANKS;
  if (numHiddenRanks > 0) ranks.append(row(`and ${integer(numHiddenRanks)} more`, "", "", "", "", ""));
  showStep(steps, hint, plan, stepParts?.details.seconds ?? {});
}

/** Describe the bars of the ranks, how evenly ranks are loaded, and the traffic of a step. */
function describePlan(plan, size) {
  const memory = plan.ranks_per_memory > 1 ? `that ${integer(plan.ranks_per_memory)} ranks share` : "of each rank";
  const traffic = sum(Object.values(plan.exchange_bytes));
  return [
    `Bars of ranks: fraction of the ${size(plan.memory_bytes)} ${memory}`,
    `the slowest rank needs ${plan.imbalance_of_seconds.toFixed(2)} times the mean time`,
    `the largest rank needs ${plan.imbalance.toFixed(2)} times the mean memory`,
    traffic ? `a step exchanges ${size(traffic)} between ranks` : "a step exchanges nothing between ranks",
  ].join(" · ");
}

/** Show the seconds of a step by part: estimated and, once the run has ended, measured. */
function showStep(steps, hint, plan, measured) {
  const estimated = plan.step_seconds ?? {};
  const table = steps.closest("table");
  const words = JSON.parse(table.dataset.words);
  const knownNames = Object.keys(words).filter((name) => name in estimated || name in measured);
  const names = [...new Set([...knownNames, ...Object.keys(estimated), ...Object.keys(measured)])];
  const isMeasured = Object.keys(measured).length > 0;
  const shown = isMeasured ? measured : estimated;
  const total = sum(Object.values(shown)) || 1;
  table.hidden = hint.hidden = !names.length;
  const dense = plan.is_dense_known ? "" : " · the estimate excludes the dense part, whose speed was unknown";
  hint.textContent = `Bars of parts: fraction of the ${isMeasured ? "measured" : "estimated"} step${dense}`;
  steps.replaceChildren(
    ...names.map((name) => {
      const seconds = [estimated[name], measured[name]].map((value) => number(milliseconds(value)));
      const line = row(name.replaceAll("_", " "), bar((shown[name] ?? 0) / total), ...seconds);
      if (name in words) line.firstChild.append(element("small", {}, words[name]));
      return line;
    }),
  );
}

/** Choose the format by the units of the memory in the document, 80 GB or 8 GiB. */
export const chooseSizeFormat = (memory) => (memory % 2 ** 20 && memory % 1e6 === 0 ? fileSize : binarySize);

const milliseconds = (seconds) => (seconds === undefined ? "–" : `${(1e3 * seconds).toFixed(1)} ms`);

const sum = (values) => values.reduce((total, value) => total + value, 0);

const cell = (content) => (content.tagName === "TD" ? content : element("td", {}, content));
const number = (text) => element("td", { class: "number" }, text);
const row = (name, ...cells) => element("tr", {}, element("th", { scope: "row" }, name), ...cells.map(cell));
const bar = (share) => element("progress", { value: share, max: 1 });
