// Axes of a scatter: linear, logarithmic, or a place for each category.
import { isKnown, rate } from "../common/format.js";
import { settingText } from "./words.js";

const DECADE = 10;
const NUM_TICKS = 6;
const MARGIN = 0.05;
const MAX_CATEGORIES = 40;
/** Different values of a setting up to which each has a tick of its own. */
const FEW_VALUES = 12;

/** Format the tick of a number. */
const tickText = (value) => {
  const size = Math.abs(value);
  if (size >= 1000) return rate(value);
  return size !== 0 && size < 0.001 ? value.toExponential(0) : String(Number(value.toPrecision(6)));
};

function makeCategories(column) {
  const values = [...new Set(column.values.filter(isKnown))];
  const sorted = column.isNumeric ? values.sort((one, other) => one - other) : values.map(String).sort();
  const shown = sorted.slice(0, MAX_CATEGORIES);
  const places = new Map(shown.map((value, index) => [String(value), index]));
  const span = shown.length;
  return {
    kind: "categories",
    at: (value) => (isKnown(value) && places.has(String(value)) ? (places.get(String(value)) + 0.5) / span : null),
    ticks: shown.map((value, index) => ({ at: (index + 0.5) / span, text: settingText(value) })),
  };
}

/** Return round numbers between two others. */
function listRound(low, high) {
  const raw = (high - low) / NUM_TICKS;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const ticks = [];
  for (let number = Math.ceil(low / step); number * step <= high * (1 + 1e-12); number += 1) ticks.push(number * step);
  return ticks;
}

/** Return powers of ten between two numbers, with 2 and 5 times each if they are few. */
function listPowers(low, high) {
  const ticks = [];
  const factors = high / low < 1000 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    ticks.push(...factors.map((factor) => factor * 10 ** power).filter((tick) => tick >= low && tick <= high));
  }
  const every = Math.ceil(ticks.length / (2 * NUM_TICKS));
  return ticks.filter((tick, index) => index % every === 0);
}

/** Make the axis of a column: `at(value)` is its place from 0 to 1, null if it has none; `ticks` have a place and a text.
 * more: further numbers that must be within it, such as ends of intervals. */
export function makeAxis(column, more = []) {
  if (!column.isNumeric) return makeCategories(column);
  const numbers = [...column.numbers, ...more].filter(isKnown);
  let low = Math.min(...numbers);
  let high = Math.max(...numbers);
  const isLogarithmic = low > 0 && high > DECADE * low;
  const warp = isLogarithmic ? Math.log : (value) => value;
  const unwarp = isLogarithmic ? Math.exp : (value) => value;
  const span = warp(high) - warp(low) || Math.abs(low) || 1;
  const start = warp(low) - MARGIN * span;
  const end = warp(high) + MARGIN * span;
  [low, high] = [unwarp(start), unwarp(end)];
  const at = (value) => (isKnown(value) ? (warp(Number(value)) - start) / (end - start) : null);
  const listTicks = () => (isLogarithmic ? listPowers(low, high) : listRound(low, high));
  const few = column.kind !== "figure" && column.distinct <= FEW_VALUES && [...new Set(numbers)].sort((one, other) => one - other);
  const ticks = few
    ? few.map((value) => ({ at: at(value), text: settingText(value) }))
    : listTicks().map((value) => ({ at: at(value), text: tickText(value) }));
  return { kind: isLogarithmic ? "logarithmic" : "linear", at, ticks };
}
