// Colours of points by the values of a column: a colour each for few values, a scale from blue to orange for numbers.
import { element } from "../common/elements.js";
import { isKnown } from "../common/format.js";
import { countValues } from "./values.js";
import { valueText } from "./words.js";

const NUM_COLOURS = 7;
const REST = "var(--muted)";
const mix = (fraction) => `color-mix(in oklab, var(--series-2) ${Math.round(100 * fraction)}%, var(--series-1))`;

function makeEntry(colour, text) {
  const dot = element("span", { class: "dot" });
  dot.style.setProperty("--own", colour);
  return element("li", {}, dot, text);
}

/** Colours for numbers: between the lowest and the highest value. */
function makeScale(column) {
  const known = column.numbers.filter(isKnown);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const isLogarithmic = low > 0 && high > 10 * low;
  const warp = isLogarithmic ? Math.log : (value) => value;
  const fraction = (value) => (warp(value) - warp(low)) / (warp(high) - warp(low) || 1);
  return {
    colourOf: (index) => (isKnown(column.numbers[index]) ? mix(fraction(column.numbers[index])) : REST),
    showLegend(list) {
      const text = (value) => valueText(column, value);
      list.replaceChildren(element("li", {}, `${column.title}: ${text(low)}`), element("li", { class: "scale", "aria-hidden": "true" }), element("li", {}, text(high)));
    },
  };
}

/** Colours for words and few numbers: one each for the most frequent values. */
function makeKinds(column) {
  const counts = countValues(column);
  const places = new Map(counts.slice(0, NUM_COLOURS).map(([value], index) => [value, index + 1]));
  const colourOf = (value) => (places.has(value) ? `var(--series-${places.get(value)})` : REST);
  return {
    colourOf: (index) => colourOf(column.values[index]),
    showLegend(list) {
      const rest = counts.slice(NUM_COLOURS).reduce((sum, [, count]) => sum + count, 0);
      const shown = counts.slice(0, NUM_COLOURS).sort(([one], [other]) => String(one).localeCompare(String(other), "en", { numeric: true }));
      const entries = shown.map(([value, count]) => makeEntry(colourOf(value), `${valueText(column, value)} (${count})`));
      list.replaceChildren(element("li", {}, `${column.title}:`), ...entries, ...(rest ? [makeEntry(REST, `other values (${rest})`)] : []));
    },
  };
}

/** Make the colours of points: `colourOf(index)` of a job, and `showLegend(list)`. column: null for one colour. */
export function makePalette(column) {
  if (column === null) return { colourOf: () => "var(--series-1)", showLegend: (list) => list.replaceChildren() };
  return column.isNumeric && column.distinct > NUM_COLOURS ? makeScale(column) : makeKinds(column);
}
