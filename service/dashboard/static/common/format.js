// Numbers, times and sizes as texts.

/** Numbers between these are written without an exponent. */
const MIN_PLAIN = 1e-4;
const MAX_PLAIN = 1e6;
/** Number from which on thousands have no letter: K, M, B and T are below. */
const MAX_LETTER = 1e15;
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const powers = new Intl.NumberFormat("en", { notation: "scientific", maximumSignificantDigits: 4 });
const times = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export const UNKNOWN = "–";

export const isKnown = (value) => value !== null && value !== undefined;

export const integer = (value) => (isKnown(value) ? whole.format(value) : UNKNOWN);
/** Format a number of things: 1 core, 2,000 cores. */
export const count = (number, noun) => `${integer(number)} ${noun}${number === 1 ? "" : "s"}`;
/** Format a number as a digit and a power of ten: 4.261e20. */
export const scientific = (value) => powers.format(value).replace("E", "e");
/** Format a number with three significant digits: 4.93K, 2.5e18. */
export function rate(value) {
  if (!isKnown(value)) return UNKNOWN;
  return Math.abs(value) < MAX_LETTER ? compact.format(value) : scientific(value);
}
/** Format a number with at least four significant digits: 0.6931, 0.0015, 1.5e-5, 4.261e20. */
export function figure(value) {
  if (!isKnown(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0 || (size >= 0.1 && size < MAX_PLAIN)) return value.toFixed(4);
  return size >= MIN_PLAIN && size < MAX_PLAIN ? String(Number(value.toPrecision(4))) : scientific(value);
}
/** Format an estimated number of samples: 31,204, or 0.4. */
export const samples = (value) =>
  isKnown(value) && value < 10 ? String(Number(value.toPrecision(2))) : integer(value);
/** Format a ratio: 2.90, or 0.012. */
export const multiple = (value) => (value < 0.1 ? String(Number(value.toPrecision(2))) : times.format(value));
/** Figures at k within groups by the beginning of their names. */
const FIGURES_AT = {
  recall_at_: { word: "Recall", meaning: "share of a group's clicks among its best-scored rows" },
  ndcg_at_: { word: "NDCG", meaning: "order of a group's best-scored rows: 1 is the best order" },
};

/** Split the name of a figure at k within groups, such as recall_at_5: {word, meaning, rank}; null of another. */
export function splitRank(name) {
  const [, beginning, rank] = /^(.+_at_)([0-9]+)$/.exec(name) ?? [];
  return FIGURES_AT[beginning] ? { ...FIGURES_AT[beginning], rank: Number(rank) } : null;
}

/** List the figures at k among `names`, recall first and ranks rising: [{name, word, meaning, rank}, …]. */
export function listRanked(names) {
  const found = names.flatMap((name) => (splitRank(name) ? [{ name, ...splitRank(name) }] : []));
  const places = Object.values(FIGURES_AT).map(({ word }) => word);
  return found.sort((one, other) => places.indexOf(one.word) - places.indexOf(other.word) || one.rank - other.rank);
}
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

/** Begin a sentence with a capital letter. */
export const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const rounded = Math.max(0, Math.round(seconds));
  if (rounded < 60) return `${rounded} s`;
  const minutes = Math.floor(rounded / 60);
  if (minutes < 60) return `${minutes} min ${String(rounded % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** Format a time that is estimated: from ten minutes on in whole minutes. */
export function estimate(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const minutes = Math.round(seconds / 60);
  return minutes < 10 || minutes >= 60 ? duration(minutes < 10 ? seconds : 60 * minutes) : `${minutes} min`;
}

export function ago(time) {
  const minutes = Math.floor((Date.now() - Date.parse(time)) / 60_000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ago` : `${Math.floor(hours / 24)} d ago`;
}
