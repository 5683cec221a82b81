// Plan of the tables: their ranks, the memory of each rank as stacked bars, and the seconds of a step as paired ones.
import { element } from "../common/elements.js";
import { binarySize, fileSize, integer } from "../common/format.js";

const NUM_LARGEST = 10;
const MAX_RANKS = 64;
/** Largest ratio to the mean of ranks that count as evenly loaded. */
const EVEN = 1.05;

/** Fill `details` and show it; it stays hidden without a plan. stepParts: event of measured seconds, or undefined. */
export function showPlan(details, event, stepParts) {
  const plan = event?.details;
  if (!plan?.memory_bytes) return;
  details.hidden = false;
  const [facts, hint] = details.querySelectorAll(".hint");
  const [, ranks, steps] = details.querySelectorAll("tbody");
  const size = chooseSizeFormat(plan.memory_bytes);
  facts.textContent = describePlan(plan, size);
  showTables(details, plan.tables);
  const rankMemory = plan.weight_bytes.map((weights, rank) => [
    weights, plan.optimizer_bytes[rank], plan.buffer_bytes[rank],
  ]);
  ranks.replaceChildren(
    ...rankMemory.slice(0, MAX_RANKS).map((parts, rank) => {
      const total = sum(parts);
      const cells = [...parts, total].map((bytes) => number(size(bytes)));
      return row(`rank ${rank}`, stack(parts.map((bytes) => bytes / plan.memory_bytes)), ...cells);
    }),
  );
  const numHiddenRanks = rankMemory.length - MAX_RANKS;
  if (numHiddenRanks > 0) ranks.append(row(`and ${integer(numHiddenRanks)} more`, "", "", "", "", ""));
  showStep(steps, hint, plan, stepParts?.details.seconds ?? {});
}

/** Show the largest tables, or all of them once the reader has asked for them. */
function showTables(details, tables) {
  const largestFirst = Object.entries(tables).sort(([, one], [, other]) => (other.num_rows ?? 0) - (one.num_rows ?? 0));
  const areAllShown = details.hasAttribute("data-all");
  const shown = areAllShown ? largestFirst : largestFirst.slice(0, NUM_LARGEST);
  details.querySelector("tbody").replaceChildren(
    ...shown.map(([name, table]) => row(name, number(integer(table.num_rows)), table.type.replaceAll("_", " "), describeRanks(table.ranks))),
  );
  const button = details.querySelector("button");
  button.hidden = largestFirst.length <= NUM_LARGEST;
  button.textContent = areAllShown ? `The ${NUM_LARGEST} largest tables` : `All ${integer(largestFirst.length)} tables`;
  button.onclick = () => {
    details.toggleAttribute("data-all");
    showTables(details, tables);
  };
}

/** List ranks: 0, 2, or 0 to 63. */
function describeRanks(ranks) {
  const [first, last] = [ranks[0], ranks.at(-1)];
  return ranks.length > 2 && last - first === ranks.length - 1 ? `${first} to ${last}` : ranks.join(", ");
}

/** Sum what the ranks of each machine or GPU need of its memory. */
export function sumPlannedBytes({ weight_bytes, optimizer_bytes, buffer_bytes, ranks_per_memory: width }) {
  const ranks = weight_bytes.map((weights, rank) => weights + optimizer_bytes[rank] + buffer_bytes[rank]);
  return ranks.flatMap((_, rank) => (rank % width ? [] : [sum(ranks.slice(rank, rank + width))]));
}

/** Describe the bars of the ranks, how evenly ranks are loaded, and the traffic of a step. */
function describePlan(plan, size) {
  const memory = plan.ranks_per_memory > 1 ? `that ${integer(plan.ranks_per_memory)} ranks share` : "of each rank";
  const traffic = sum(Object.values(plan.exchange_bytes));
  const isAlone = plan.weight_bytes.length === 1;
  return [
    `Bars of ranks: fraction of the ${size(plan.memory_bytes)} ${memory}`,
    ...(isAlone ? [] : [describeBalance(plan)]),
    traffic ? `a step exchanges ${size(traffic)} between ranks` : "a step exchanges nothing between ranks",
  ].join(" · ");
}

/** Say how evenly the tables load the ranks. */
function describeBalance({ imbalance_of_seconds: ofTime, imbalance: ofMemory }) {
  if (Math.max(ofTime, ofMemory) < EVEN) return "all ranks have about the same time and memory";
  return (
    `the slowest rank needs ${ofTime.toFixed(2)} times the mean time` +
    ` · the largest rank needs ${ofMemory.toFixed(2)} times the mean memory`
  );
}

/** Show the seconds of a step by part: estimated and, once the run has ended, measured. */
function showStep(steps, hint, plan, measured) {
  const estimated = plan.step_seconds ?? {};
  const table = steps.closest("table");
  const words = JSON.parse(table.dataset.words);
  const knownNames = Object.keys(words).filter((name) => name in estimated || name in measured);
  const names = [...new Set([...knownNames, ...Object.keys(estimated), ...Object.keys(measured)])];
  const isMeasured = Object.keys(measured).length > 0;
  const longest = Math.max(...Object.values(estimated), ...Object.values(measured)) || 1;
  table.hidden = hint.hidden = !names.length;
  table.querySelector("th[data-part=measured]").hidden = !isMeasured;
  const dense = plan.is_dense_known ? "" : " · the estimate excludes the dense part, whose speed was unknown";
  hint.textContent = `${describeStep(estimated, measured)}${dense}`;
  steps.replaceChildren(
    ...names.map((name) => {
      const shown = isMeasured ? [estimated[name], measured[name]] : [estimated[name]];
      const seconds = shown.map((value) => number(milliseconds(value)));
      const times = pair((estimated[name] ?? 0) / longest, isMeasured ? (measured[name] ?? 0) / longest : null);
      const line = row(name.replaceAll("_", " "), times, ...seconds);
      if (name in words) line.firstChild.append(element("small", {}, words[name]));
      return line;
    }),
  );
}

/** Say how long a step takes in all. */
function describeStep(estimated, measured) {
  const [ofPlan, ofRun] = [estimated, measured].map((parts) => sum(Object.values(parts)));
  const words = [ofPlan ? `estimated ${milliseconds(ofPlan)}` : "", ofRun ? `measured ${milliseconds(ofRun)}` : ""];
  return `A step in all: ${words.filter(Boolean).join(", ")}`;
}

/** Choose the format by the units of the memory in the document, 80 GB or 8 GiB. */
export const chooseSizeFormat = (memory) => (memory % 2 ** 20 && memory % 1e6 === 0 ? fileSize : binarySize);

const milliseconds = (seconds) => (seconds === undefined ? "–" : `${(1e3 * seconds).toFixed(1)} ms`);

const sum = (values) => values.reduce((total, value) => total + value, 0);

const cell = (content) => (content.tagName === "TD" ? content : element("td", {}, content));
const number = (text) => element("td", { class: "number" }, text);
const row = (name, ...cells) => element("tr", {}, element("th", { scope: "row" }, name), ...cells.map(cell));

const part = (name, share) => {
  const bar = element("span", { "data-part": name });
  bar.style.width = `${100 * Math.min(share, 1)}%`;
  return bar;
};
// The cells beside the bars say the same in figures.
const bars = (kind, parts) => element("div", { class: kind, "aria-hidden": "true" }, ...parts);
const stack = (shares) => bars("stack", ["weights", "state", "buffers"].map((name, index) => part(name, shares[index])));
const pair = (estimated, measured) =>
  bars("pair", [part("estimated", estimated), ...(measured === null ? [] : [part("measured", measured)])]);
