// Axes of charts: what stands along them, their ranges and their ticks.
import { duration, integer, rate, scientific } from "../common/format.js";
import { LogScale } from "./scale.js";

const LOG_BASE = 10;
const MAX_DECIMALS = 9;
const MAX_EVEN_TICKS = 5;
/** Number of powers of ten between which there is room for ticks. */
const FEW_POWERS = 3;
/** Distance of ticks from which on their values are shortened. */
const LARGE_INCREMENT = 10_000;
const decades = [...Array(13).keys()].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const spans = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE];
const hours = [1, 2, 3, 6, 12, 24, 48, 96, 192, 384, 768].map((number) => number * HOUR);

/** What the values along a chart may be: name, name of several, name with unit, increments of ticks, and how values are written. */
export const X = {
  step: { name: "step", plural: "steps", title: "step", increments: decades, format: integer },
  samples: { name: "samples", plural: "samples", title: "samples", increments: decades, format: integer },
  time: { name: "time", plural: "seconds", title: "time since start (s)", increments: [...spans, ...hours], format: duration },
};

/** Format the ticks of an axis along the chart; they are far apart if they are large. */
export function formatTicks(x, values, increment) {
  if (x !== X.time) return values.map(increment >= LARGE_INCREMENT ? rate : integer);
  return values.map((seconds) => {
    if (seconds < MINUTE || increment < MINUTE) return duration(seconds);
    return seconds < HOUR ? `${seconds / MINUTE} min` : `${Number((seconds / HOUR).toFixed(2))} h`;
  });
}

/** Range of the value axis; a single value gets a tenth of it on each side, where uPlot would begin at 0. */
export function getValueRange(plot, min, max) {
  if (min === null) return [0, 1];
  if (min < max) return uPlot.rangeNum(min, max, 0.1, true);
  const margin = Math.abs(min) / 10 || 1;
  return [min - margin, max + margin];
}

/** Range of a logarithmic value axis: whole powers of ten where the values differ as much, else what holds them. */
export function getLogRange(plot, min, max) {
  if (min === null || min <= 0) return [1, LOG_BASE];
  if (min === max) return [min / 2, 2 * max];
  return uPlot.rangeLog(min, max, LOG_BASE, max / min >= LOG_BASE);
}

/** Format the ticks of a value axis with as many decimals as their distance needs. */
export function formatValues(plot, values, index, space, increment) {
  if (Math.max(...values.map(Math.abs)) >= LARGE_INCREMENT) return values.map(rate);
  let decimals = 0;
  // An increment may be 0.025.
  while (decimals < MAX_DECIMALS && Math.abs(increment * 10 ** decimals - Math.round(increment * 10 ** decimals)) > 1e-6) decimals += 1;
  const format = new Intl.NumberFormat("en", { maximumFractionDigits: decimals });
  return values.map((value) => (increment < 1e-4 && value ? value.toExponential(1) : format.format(value)));
}

/** List the ticks of a logarithmic value axis: evenly within a power of ten; else 1, 2 and 5 of few powers, or 1 of many. */
export function listLogTicks(plot, axis, low, high) {
  const numPowers = Math.log10(high / low);
  if (numPowers <= 1) {
    const rough = (high - low) / MAX_EVEN_TICKS;
    const power = 10 ** Math.floor(Math.log10(rough));
    const increment = power * [1, 2, 5, 10].find((digit) => digit * power >= rough);
    const first = Math.ceil(low / increment);
    return [...Array(Math.floor(high / increment) - first + 1).keys()].map((number) => (first + number) * increment);
  }
  const digits = numPowers <= FEW_POWERS ? [1, 2, 5] : [1];
  const ticks = new LogScale([low, high]).listTicks().flatMap((power) => digits.map((digit) => digit * power));
  return ticks.filter((tick) => low <= tick && tick <= high);
}

export const formatLogTicks = (plot, values) => values.map((value) => (value < 0.001 ? scientific(value) : rate(value)));
