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
  const seconds = Object.entries(parts?.details.seconds ?? {});
  const all = seconds.reduce((sum, [, value]) => sum + value, 0);
  steps.closest("table").hidden = !seconds.length;
  steps.replaceChildren(
    ...seconds.map(([part, value]) => row(part.replaceAll("_", " "), bar(value / all), `${(1e3 * value).toFixed(1)} ms`)),
  );
}

const row = (name, middle, last) =>
  element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, middle), element("td", {}, last));
const bar = (share) => element("progress", { value: share, max: 1 });
