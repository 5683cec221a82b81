// Numbers, times and elements, the way this dashboard writes them. Text only ever goes into text nodes.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const times = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export const UNKNOWN = "–";

export const known = (value) => value !== null && value !== undefined;

export const integer = (value) => (known(value) ? whole.format(value) : UNKNOWN);
export const rate = (value) => (known(value) ? compact.format(value) : UNKNOWN);
/** With the digits that matter: 0.6931, 0.000015. */
export function figure(value) {
  if (!known(value)) return UNKNOWN;
  return value === 0 || Math.abs(value) >= 0.1 ? value.toFixed(4) : String(Number(value.toPrecision(4)));
}
/** A number of samples that was estimated: 31,204, or 0.4. */
export const samples = (value) => (known(value) && value < 10 ? String(Number(value.toPrecision(2))) : integer(value));
/** How many times as much: 2.90, or 0.012. */
export const multiple = (value) => (value < 0.1 ? String(Number(value.toPrecision(2))) : times.format(value));
export const percent = (fraction) => (known(fraction) ? `${Math.floor(fraction * 100)} %` : "");
export const bytes = (value) => `${(value / 2 ** 30).toFixed(1)} GiB`;

/** The size of files, in decimal units. */
export function fileSize(value) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), units.length - 1);
  const format = { style: "unit", unit: units[power], maximumFractionDigits: power ? 1 : 0 };
  return new Intl.NumberFormat("en", format).format(value / 1000 ** power);
}

/** The size of memory, in units of 1,024. */
export function binarySize(value) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(value, 1)) / 10), units.length - 1);
  return `${(value / 1024 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
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

/** An element with attributes and children; strings become text nodes. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
export const hasEnded = (job) => ENDED.has(job.state);

export function showState(target, state) {
  target.textContent = state.toLowerCase();
  target.className = "state";
  target.dataset.state = state;
}

const SELF_EVIDENT = new Set(["RUNNING", "SUCCEEDED"]);

/** A short word such as `waiting_for_cpu`, for people; nothing where the state says it already. */
export function reasonText(job) {
  return job.reason && !SELF_EVIDENT.has(job.state) ? job.reason.replaceAll("_", " ") : "";
}

function restartText(job) {
  const seconds = (Date.parse(job.restarts_at) - Date.now()) / 1000;
  return `attempt ${job.num_attempts + 1} starts ${seconds > 0 ? `in ${duration(seconds)}` : "now"}`;
}

/** How far a job is, in words: phase, what it says, step, what is left. */
export function progressText(job) {
  const { phase, message, step, num_steps, eta_seconds } = job.progress;
  const parts = [];
  const isStarted = job.state === "STARTING" || job.state === "RUNNING";
  if (isStarted && phase !== "training") parts.push(phase ?? "starting");
  if (isStarted && phase === "preparing") return [...parts, message].filter(Boolean).join(" · ");
  if (known(step) && num_steps) parts.push(`step ${integer(step)} of ${integer(num_steps)}`);
  if (isStarted && known(eta_seconds)) parts.push(`${duration(eta_seconds)} left`);
  if (known(job.restarts_at)) parts.push(restartText(job));
  return parts.join(" · ");
}

/** Fill a <progress>: empty while a job waits, moving while how far it is is not known. */
export function showProgress(bar, job) {
  const fraction = job.state === "SUCCEEDED" ? 1 : job.progress.done_fraction;
  const isWaiting = ["QUEUED", "RECOVERING", "PAUSED"].includes(job.state) || hasEnded(job);
  if (known(fraction) || isWaiting) bar.value = fraction ?? 0;
  else bar.removeAttribute("value");
  bar.dataset.state = job.state;
}

/** One chip a label. */
export function labelChips(job) {
  return Object.entries(job.labels).map(([name, value]) => element("span", { class: "label" }, `${name}: ${value}`));
}
