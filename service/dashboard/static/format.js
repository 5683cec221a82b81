// Numbers, times and elements as this dashboard shows them. Text goes only into text nodes.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const times = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export const UNKNOWN = "–";

export const isKnown = (value) => value !== null && value !== undefined;

export const integer = (value) => (isKnown(value) ? whole.format(value) : UNKNOWN);
export const rate = (value) => (isKnown(value) ? compact.format(value) : UNKNOWN);
/** Format a number with four significant digits: 0.6931, 0.000015. */
export function figure(value) {
  if (!isKnown(value)) return UNKNOWN;
  return value === 0 || Math.abs(value) >= 0.1 ? value.toFixed(4) : String(Number(value.toPrecision(4)));
}
/** Format an estimated number of samples: 31,204, or 0.4. */
export const samples = (value) =>
  isKnown(value) && value < 10 ? String(Number(value.toPrecision(2))) : integer(value);
/** Format a ratio: 2.90, or 0.012. */
export const multiple = (value) => (value < 0.1 ? String(Number(value.toPrecision(2))) : times.format(value));
export const percent = (fraction) => (isKnown(fraction) ? `${Math.floor(fraction * 100)} %` : "");
export const bytes = (value) => `${(value / 2 ** 30).toFixed(1)} GiB`;

/** Format the size of files, in decimal units. */
export function fileSize(value) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), units.length - 1);
  const format = { style: "unit", unit: units[power], maximumFractionDigits: power ? 1 : 0 };
  return new Intl.NumberFormat("en", format).format(value / 1000 ** power);
}

/** Format the size of memory, in units of 1,024. */
export function binarySize(value) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(value, 1)) / 10), units.length - 1);
  return `${(value / 1024 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const rounded = Math.max(0, Math.round(seconds));
  if (rounded < 60) return `${rounded} s`;
  const minutes = Math.floor(rounded / 60);
  if (minutes < 60) return `${minutes} min ${String(rounded % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export function ago(time) {
  const minutes = Math.floor((Date.now() - Date.parse(time)) / 60_000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ago` : `${Math.floor(hours / 24)} d ago`;
}

export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

/** Create an element with attributes and children; strings become text nodes. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Fill a <dl> with tiles, each a name, a value and a note on it. */
export function showTiles(list, tiles) {
  list.replaceChildren(
    ...tiles.map(([name, value, note]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, note))),
    ),
  );
}

const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
export const hasEnded = (job) => ENDED.has(job.state);

/** Show the state of a job or an attempt; a job with warnings about its model is no plain success. */
export function showState(target, { state, has_warnings = false }) {
  target.textContent = state.toLowerCase();
  target.className = "state";
  target.dataset.state = state;
  target.toggleAttribute("data-warned", has_warnings);
}

const SELF_EVIDENT = new Set(["RUNNING", "SUCCEEDED"]);

/** Format a reason such as `waiting_for_cpu`; empty where the state is enough. */
export function reasonText(job) {
  return job.reason && !SELF_EVIDENT.has(job.state) ? job.reason.replaceAll("_", " ") : "";
}

function restartText(job) {
  const seconds = (Date.parse(job.restarts_at) - Date.now()) / 1000;
  return `attempt ${job.num_attempts + 1} starts ${seconds > 0 ? `in ${duration(seconds)}` : "now"}`;
}

/** Phases before the first step and after the last one, whose messages say how far they are. */
const PHASES_WITHOUT_STEPS = new Set(["starting", "preparing", "loading", "building", "finishing"]);

/** Describe the progress of a job: phase, its message, step and time left. */
export function progressText(job) {
  const { phase, message, step, num_steps, eta_seconds } = job.progress;
  const parts = [];
  const isStarted = job.state === "STARTING" || job.state === "RUNNING";
  if (isStarted && phase !== "training") parts.push(phase ?? "starting");
  if (isStarted && PHASES_WITHOUT_STEPS.has(phase)) {
    const left = phase === "finishing" && isKnown(eta_seconds) ? `about ${duration(eta_seconds)} left` : "";
    return [...parts, message, left].filter(Boolean).join(" · ");
  }
  if (isKnown(step) && num_steps) parts.push(`step ${integer(step)} of ${integer(num_steps)}`);
  if (isStarted && isKnown(eta_seconds)) parts.push(`${duration(eta_seconds)} left`);
  if (isKnown(job.restarts_at)) parts.push(restartText(job));
  return parts.join(" · ");
}

/** Largest number of sizes before the last one that are shown one by one. */
const MAX_SIZES_SHOWN = 4;

/** Describe the stages of a batch that grows: 1,024 until 25 %, then 4,096; empty for a batch of one size. Of many, the
 * first, how many follow, and the last two. */
export function stagesText(stages) {
  const sizes = stages.map(({ global_size, until_fraction }) =>
    isKnown(until_fraction) ? `${integer(global_size)} until ${Number((100 * until_fraction).toPrecision(4))} %` : integer(global_size));
  if (sizes.length > MAX_SIZES_SHOWN + 1) sizes.splice(1, sizes.length - 3, `${sizes.length - 3} more sizes`);
  return sizes.join(", then ");
}

/** Fill a <progress>: empty while a job waits, moving while its progress is unknown. */
export function showProgress(bar, job) {
  const fraction = job.state === "SUCCEEDED" ? 1 : job.progress.done_fraction;
  const isWaiting = ["QUEUED", "RECOVERING", "PAUSED"].includes(job.state) || hasEnded(job);
  if (isKnown(fraction) || isWaiting) bar.value = fraction ?? 0;
  else bar.removeAttribute("value");
  bar.dataset.state = job.state;
}

/** Create one chip per label. */
export function labelChips(job) {
  return Object.entries(job.labels).map(([name, value]) => element("span", { class: "label" }, `${name}: ${value}`));
}
