// Where the tables of a run are, what each rank holds of them, and where the time of a step went.
import { element, fileSize, integer } from "./format.js";

const SHOWN_TABLES = 100;
const SHOWN_RANKS = 64;

/** Fill `details`, hidden until there is an event that has a plan. parts: the event of measured seconds, or none. */
export function showPlan(details, plan, parts) {
  const bytes = plan?.details.weight_bytes;
  if (!bytes) return;
  details.hidden = false;
  const [tables, ranks, steps] = details.querySelectorAll("tbody");
  const planned = Object.entries(plan.details.tables);
  tables.replaceChildren(
    ...planned.slice(0, SHOWN_TABLES).map(([name, of]) => row(name, of.type.replaceAll("_", " "), of.ranks.join(", "))),
  );
  if (planned.length > SHOWN_TABLES) tables.append(row(`and ${integer(planned.length - SHOWN_TABLES)} more`, "", ""));
  const most = Math.max(...bytes, 1);
  ranks.replaceChildren(
    ...bytes.slice(0, SHOWN_RANKS).map((held, rank) => row(`rank ${rank}`, bar(held / most), fileSize(held))),
  );
  if (bytes.length > SHOWN_RANKS) ranks.append(row(`and ${integer(bytes.length - SHOWN_RANKS)} more`, "", ""));
  showStep(steps, plan.details.step_seconds ?? {}, parts?.details.seconds ?? {});
}

/** Seconds of a step by part, as they were estimated and, once a run is over, measured. */
function showStep(steps, estimated, measured) {
  const names = [...new Set([...Object.keys(estimated), ...Object.keys(measured)])];
  const shown = Object.keys(measured).length ? measured : estimated;
  const all = Object.values(shown).reduce((sum, value) => sum + value, 0) || 1;
  steps.closest("table").hidden = !names.length;
  steps.replaceChildren(
    ...names.map((name) =>
      row(name.replaceAll("_", " "), bar((shown[name] ?? 0) / all), milliseconds(estimated[name]), milliseconds(measured[name])),
    ),
  );
}

const milliseconds = (seconds) => (seconds === undefined ? "–" : `${(1e3 * seconds).toFixed(1)} ms`);

const row = (name, ...cells) =>
  element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((cell) => element("td", {}, cell)));
const bar = (share) => element("progress", { value: share, max: 1 });
