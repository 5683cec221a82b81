// Where the tables of a run are, what each rank holds of them, and where the time of a step went.
import { binarySize, element, fileSize, integer } from "./format.js";

const SHOWN_TABLES = 100;
const SHOWN_RANKS = 64;

/** Fill `details`, hidden until there is an event that has a plan. parts: the event of measured seconds, or none. */
export function showPlan(details, event, parts) {
  const plan = event?.details;
  if (!plan?.memory_bytes) return;
  details.hidden = false;
  const [facts, hint] = details.querySelectorAll(".hint");
  const [tables, ranks, steps] = details.querySelectorAll("tbody");
  const size = sizeAs(plan.memory_bytes);
  facts.textContent = inWords(plan, size);
  const planned = Object.entries(plan.tables);
  tables.replaceChildren(
    ...planned.slice(0, SHOWN_TABLES).map(([name, of]) => row(name, of.type.replaceAll("_", " "), of.ranks.join(", "))),
  );
  if (planned.length > SHOWN_TABLES) tables.append(row(`and ${integer(planned.length - SHOWN_TABLES)} more`, "", ""));
  const held = plan.weight_bytes.map((weights, rank) => [weights, plan.optimizer_bytes[rank], plan.buffer_bytes[rank]]);
  ranks.replaceChildren(
    ...held.slice(0, SHOWN_RANKS).map((of, rank) => {
      const all = sum(of);
      return row(`rank ${rank}`, bar(all / plan.memory_bytes), ...[...of, all].map((bytes) => number(size(bytes))));
    }),
  );
  if (held.length > SHOWN_RANKS) ranks.append(row(`and ${integer(held.length - SHOWN_RANKS)} more`, "", "", "", "", ""));
  showStep(steps, hint, plan, parts?.details.seconds ?? {});
}

/** What the bars of ranks are of, how even ranks are, and what travels. */
function inWords(plan, size) {
  const whose = plan.ranks_per_memory > 1 ? `that ${integer(plan.ranks_per_memory)} ranks share` : "of each rank";
  const traffic = sum(Object.values(plan.exchange_bytes));
  return [
    `Bars of ranks: of the ${size(plan.memory_bytes)} ${whose}`,
    `the slowest rank takes ${plan.imbalance_of_seconds.toFixed(2)} times the mean, the largest holds ${plan.imbalance.toFixed(2)} times the mean`,
    traffic ? `${size(traffic)} travel in a step` : "nothing travels between ranks",
  ].join(" · ");
}

/** Seconds of a step by part, as they were estimated and, once a run is over, measured. */
function showStep(steps, hint, plan, measured) {
  const estimated = plan.step_seconds ?? {};
  const table = steps.closest("table");
  const words = JSON.parse(table.dataset.words);
  const inOrder = Object.keys(words).filter((name) => name in estimated || name in measured);
  const names = [...new Set([...inOrder, ...Object.keys(estimated), ...Object.keys(measured)])];
  const isMeasured = Object.keys(measured).length > 0;
  const shown = isMeasured ? measured : estimated;
  const all = sum(Object.values(shown)) || 1;
  table.hidden = hint.hidden = !names.length;
  const dense = plan.is_dense_known ? "" : " · the estimate is without the dense part, whose speed was not known";
  hint.textContent = `Bars of parts: of the ${isMeasured ? "measured" : "estimated"} step${dense}`;
  steps.replaceChildren(
    ...names.map((name) => {
      const seconds = [estimated[name], measured[name]].map((value) => number(milliseconds(value)));
      const line = row(name.replaceAll("_", " "), bar((shown[name] ?? 0) / all), ...seconds);
      if (name in words) line.firstChild.append(element("small", {}, words[name]));
      return line;
    }),
  );
}

/** In the units that the memory was written in, 80 GB or 8 GiB. */
const sizeAs = (memory) => (memory % 2 ** 20 && memory % 1e6 === 0 ? fileSize : binarySize);

const milliseconds = (seconds) => (seconds === undefined ? "–" : `${(1e3 * seconds).toFixed(1)} ms`);

const sum = (values) => values.reduce((total, value) => total + value, 0);

const cell = (content) => (content.tagName === "TD" ? content : element("td", {}, content));
const number = (text) => element("td", { class: "number" }, text);
const row = (name, ...cells) => element("tr", {}, element("th", { scope: "row" }, name), ...cells.map(cell));
const bar = (share) => element("progress", { value: share, max: 1 });
