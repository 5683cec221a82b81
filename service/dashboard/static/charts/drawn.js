// What a chart draws: its lines with their data, from the curves of one run or of its attempts.
import { isKnown } from "../common/format.js";
import { join } from "./chart.js";
import { smooth } from "./smoothing.js";

const NUM_COLOURS = 8;

/**
 * Make the lines and data of a chart of `CHARTS` from the valid curves of a run: {lines, data, main}, with the data as
 * `Chart.show` takes it, and `main`, the values of the first line before they are smoothed. null without a known value.
 * positions: of the points along the chart, null where unknown.
 */
export function drawWhole(chart, curves, positions, weight) {
  const isShown = pick(positions);
  const pickShown = (values) => values.filter((value, index) => isShown[index]);
  const read = (line, statistic) => pickShown(curves.get(line.name, statistic));
  const main = read(chart.lines[0]);
  if (!main.some(isKnown)) return null;
  const lines = [];
  const data = [pickShown(positions)];
  for (const line of chart.lines) {
    const values = line.name ? read(line) : data[0].map(() => line.value);
    if (!values.some(isKnown)) continue;
    const isSmoothed = line.isSmoothed && weight > 0;
    lines.push({ ...line, isFaint: isSmoothed });
    data.push(values);
    if (!isSmoothed) continue;
    lines.push({ label: "smoothed", colour: line.colour });
    data.push(smooth(values, weight));
  }
  const edges = lines.filter(({ hasBand }) => hasBand).flatMap((line) => ["max", "min"].map((edge) => read(line, edge)));
  return { lines, data: [...data, ...edges], main };
}

/**
 * Make the lines and data of a chart from the curves of each attempt: [{number, curves, positions, lastStep}], of which
 * steps after `lastStep` are void, and faint. Of each attempt the first line of the chart alone is drawn.
 */
export function drawAttempts(chart, attempts, weight) {
  const lines = [];
  const parts = [];
  const [own] = chart.lines;
  for (const { number, curves, positions, lastStep } of attempts) {
    const isShown = pick(positions);
    const { steps } = curves.points;
    const values = curves.get(own.name);
    const drawn = own.isSmoothed ? smooth(values, weight) : values;
    if (!values.some(isKnown)) continue;
    const isValid = steps.some((step) => step <= lastStep);
    const add = (isWithin, line) => {
      const chosen = steps.map((step, index) => index).filter((index) => isShown[index] && isWithin(steps[index], index));
      if (!chosen.length) return;
      lines.push({ label: `attempt ${number}`, colour: `--series-${1 + ((number - 1) % NUM_COLOURS)}`, ...line });
      parts.push([positions, drawn].map((column) => chosen.map((index) => column[index])));
    };
    add((step) => step <= lastStep, {});
    // Begins with the last valid point, so that the line is whole.
    add((step, index) => (steps[index + 1] ?? step) > lastStep, { label: `attempt ${number}, void`, isFaint: true, isUnlisted: isValid });
  }
  if (!parts.length) return null;
  const data = join(parts);
  const last = lines.findLastIndex(({ isUnlisted }) => !isUnlisted);
  const main = data[1 + Math.max(last, 0)];
  for (const line of chart.lines.filter(({ value }) => isKnown(value))) {
    lines.push(line);
    data.push(data[0].map(() => line.value));
  }
  return { lines, data, main };
}

/** Choose the points whose positions are known and grow, as charts need it: clocks may have been set back. */
function pick(positions) {
  let last = -Infinity;
  return positions.map((position) => {
    const isShown = isKnown(position) && position >= last;
    if (isShown) last = position;
    return isShown;
  });
}

/** Say in a sentence how a line begins and ends, and what was best. describe: writes a position along the chart. */
export function summarise({ title, best, format }, positions, values, describe) {
  const known = values.map((value, index) => [value, positions[index]]).filter(([value]) => isKnown(value));
  if (!known.length) return "";
  const tell = ([value, position]) => `${format(value)} at ${describe(position)}`;
  const ranks = { lowest: (value) => value, highest: (value) => -value, "nearest to 1": (value) => Math.abs(value - 1) };
  const rank = ranks[best];
  const extreme = rank && known.reduce((one, other) => (rank(other[0]) < rank(one[0]) ? other : one));
  return `${title}: first ${tell(known[0])}, last ${tell(known.at(-1))}${extreme ? `, ${best} ${tell(extreme)}` : ""}.`;
}
