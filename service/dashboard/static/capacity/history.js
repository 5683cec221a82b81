// How much was in use over the last hour, day or week, and how many jobs waited.
import { get } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { dateTime } from "../common/times.js";
import { RESOURCES } from "./amounts.js";
import { AreaChart } from "./area.js";

const READ_MILLISECONDS = 60_000;
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const plural = (unit) => (value) => `${one.format(value)} ${value === 1 ? unit : `${unit}s`}`;
const FORMATS = { num_cores: plural("core"), num_gpus: plural("GPU"), num_waiting: plural("job") };

const figures = new Map();
const choices = byId("hours");
let shown = "";
let readAt = -Infinity;

for (const { name, title, format } of [...RESOURCES, { name: "num_waiting", title: "Jobs waiting" }]) {
  const figure = element("figure", { class: "history" });
  byId("history").append(figure);
  figures.set(name, { figure, chart: new AreaChart(figure, name === "num_waiting" ? title : `${title} in use`, FORMATS[name] ?? format) });
}

/** Call a function when somebody chooses another time. */
export function watchHours(call) {
  choices.addEventListener("change", call);
}

/** Read and show the history of a launcher, unless that was done within the last minute. */
export async function showHistory(launcher, capacity) {
  const hours = choices.querySelector(":checked").value;
  const chosen = `launcher=${launcher}&hours=${hours}`;
  if (chosen === shown && performance.now() - readAt < READ_MILLISECONDS) return;
  const history = await get(`/v1/capacity/history?${chosen}`);
  shown = chosen;
  readAt = performance.now();
  const span = { since: history.since, until: history.until, seconds: history.seconds_per_point };
  for (const [name, { figure, chart }] of figures) {
    const limit = capacity[name] ?? null;
    figure.hidden = name === "num_gpus" && !limit && Math.max(...history.num_gpus.max) === 0;
    if (!figure.hidden) chart.show(history[name], { ...span, limit });
  }
  const missing = Date.parse(history.since) - (Date.parse(history.until) - hours * 3_600_000);
  byId("history-note").hidden = missing < 1000 * span.seconds;
  byId("history-note").textContent = `So many jobs have ended that this begins at ${dateTime(history.since)}.`;
}
