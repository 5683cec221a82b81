// Curves over the step, over samples or over time, drawn by uPlot in the colours of the page.
import { figure, isKnown } from "../common/format.js";
import { X, formatLogTicks, formatTicks, formatValues, getLogRange, getValueRange, listLogTicks } from "./axes.js";

const HEIGHT = 230;
const ENLARGED_HEIGHT = 460;
const MAX_MARKED_POINTS = 40;
const LOGARITHMIC = 3;
const BAND_PERCENT = 18;
const FAINT_PERCENT = 32;
const MIN_ZOOM_PIXELS = 4;
const ZOOM_FACTOR = 2;
const FAR = 10;
const TICK_PIXELS = 72;
/** Position in the legend of values that are of several positions. */
const LAST_OF_EACH = "last of each";

export const getColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const mix = (colour, percent) => `color-mix(in srgb, ${getColour(colour)} ${percent}%, transparent)`;

/** Join curves that each have positions of their own: [[positions, values, …], …], as `show` expects them. */
export const join = (curves) => (curves.length === 1 ? curves[0] : uPlot.join(curves));

/**
 * Chart of curves.
 *
 * lines: [{label, colour, dash, hasBand, isFaint, isUnlisted}], colours as names of CSS variables. A line that is unlisted
 * is not in the legend. The data of the largest and smallest values around a line with a band follow the data of all lines.
 * isLogarithmic: values that are not above 0 are left out. format: function that formats values in the legend.
 * x: what stands along the chart, one of `X`. syncKey: charts with the same one share their cursor.
 * onZoom: called with the chosen [start, end] along the chart, or with null to see all of it; without it nothing zooms.
 */
export class Chart {
  constructor(target, lines, { isLogarithmic = false, format = figure, x = X.step, syncKey = null, onZoom = null } = {}) {
    Object.assign(this, { target, lines, isLogarithmic, format, x, syncKey, onZoom, range: null, data: null });
    const redraw = () => this.data && this.#draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(() => this.resize()).observe(target);
    target.tabIndex = 0;
    target.setAttribute("role", "application");
    target.setAttribute("aria-roledescription", "chart");
    if (!target.hasAttribute("aria-label")) target.setAttribute("aria-label", lines.map(({ label }) => label).join(", "));
    target.addEventListener("keydown", (event) => this.#press(event));
    target.addEventListener("blur", () => this.plot?.setCursor({ left: -FAR, top: -FAR }, true, true));
  }

  /** Fill the width of the target, and the height that a figure of the class `enlarged` has. */
  resize() {
    this.plot?.setSize(this.#size);
  }

  /** Change lines, isLogarithmic, x, or the range [start, end] that is shown, null for all; `show` draws it. */
  change(changes) {
    const isSame = Object.entries(changes).every(([name, value]) => JSON.stringify(this[name]) === JSON.stringify(value));
    Object.assign(this, changes);
    this.isChanged ||= !isSame;
  }

  /**
   * Draw `data`: [steps, values of the first line, …], as uPlot expects it. The axis ends at step `numSteps`, or where
   * that is in samples or seconds, but not before the last point. marks: steps with a vertical line, from which an attempt continued.
   */
  show(data, numSteps, marks = []) {
    const isFirst = this.data === null;
    this.data = this.isLogarithmic ? data.map((values, index) => (index ? values.map(keepPositive) : values)) : data;
    this.marks = marks;
    this.target.dataset.marks = marks.join(" ");
    this.numSteps = numSteps;
    this.target.dataset.points = data[0].length;
    if (isFirst || this.isChanged) this.#draw();
    else this.plot.setData(this.data);
    if (this.plot.cursor.idx === null) this.#showLast();
  }

  get #size() {
    const height = this.target.closest(".enlarged") ? ENLARGED_HEIGHT : HEIGHT;
    return { width: this.target.clientWidth, height };
  }

  get #wholeRange() {
    return [0, Math.max(this.numSteps ?? 0, ...this.data[0].slice(-1), 1)];
  }

  /** The range [start, end] that is seen. */
  get shownRange() {
    return this.range ?? this.#wholeRange;
  }

  #draw() {
    this.plot?.destroy();
    this.isChanged = false;
    const banded = this.lines.filter((line) => line.hasBand);
    const options = {
      ...this.#size,
      scales: {
        x: { time: false, range: () => this.shownRange },
        y: this.isLogarithmic ? { distr: LOGARITHMIC, range: getLogRange } : { range: getValueRange },
      },
      axes: this.#makeAxes(),
      series: [
        { label: this.x.name, value: (plot, value) => (isKnown(value) ? this.x.format(value) : LAST_OF_EACH) },
        ...this.lines.map((line) => this.#makeSeries(line)),
        ...banded.flatMap((line) => this.#makeEdges(line)),
      ],
      bands: banded.map((line, index) => {
        const edge = 1 + this.lines.length + 2 * index;
        return { series: [edge, edge + 1], fill: mix(line.colour, BAND_PERCENT) };
      }),
      cursor: this.#makeCursor(),
      hooks: {
        drawAxes: [(plot) => this.#drawMarks(plot)],
        setCursor: [(plot) => plot.cursor.idx === null && this.#showLast()],
        setSelect: [(plot) => this.#zoomTo(plot)],
      },
    };
    this.plot = new uPlot(options, this.data, this.target);
    this.target.querySelectorAll(".u-legend th").forEach((head) => head.setAttribute("scope", "row"));
  }

  #makeAxes() {
    const axis = {
      stroke: getColour("--muted"),
      grid: { stroke: getColour("--line"), width: 1 },
      ticks: { stroke: getColour("--line"), width: 1 },
      font: "11px system-ui, sans-serif",
    };
    const format = (plot, values, index, space, increment) => formatTicks(this.x, values, increment);
    return [
      { ...axis, size: 30, space: TICK_PIXELS, incrs: this.x.increments, values: format },
      { ...axis, size: 58, ...(this.isLogarithmic ? logarithmic : { values: formatValues }) },
    ];
  }

  #makeCursor() {
    return {
      y: false,
      drag: { x: this.onZoom !== null, y: false, setScale: false },
      bind: { dblclick: () => () => this.onZoom?.(null) },
      dataIdx: (plot, series, index) => findNearest(plot.data[series], index),
      // Other charts follow the cursor, not the drag.
      sync: this.syncKey && { key: this.syncKey, filters: { pub: (type) => ["mousemove", "mouseleave"].includes(type) } },
    };
  }

  #zoomTo(plot) {
    const { left, width } = plot.select;
    if (width < MIN_ZOOM_PIXELS) return;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.onZoom(zoomable([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]));
  }

  #press(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const zooms = { "+": 1 / ZOOM_FACTOR, "=": 1 / ZOOM_FACTOR, "-": ZOOM_FACTOR };
    if (!this.plot || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.#moveCursor(moves[event.key] * (event.shiftKey ? FAR : 1));
    else if (event.key in zooms && this.onZoom) this.#zoomBy(zooms[event.key]);
    else if (event.key === "Escape" && this.range) this.onZoom?.(null);
    else return;
    event.preventDefault();
  }

  /** Move the cursor by so many points of those that are seen. */
  #moveCursor(distance) {
    const [xs] = this.plot.data;
    const [start, end] = this.shownRange;
    const first = xs.findIndex((x) => x >= start);
    const last = xs.findLastIndex((x) => x <= end);
    if (first < 0 || last < first) return;
    const from = this.plot.cursor.idx ?? (distance > 0 ? first - 1 : last + 1);
    const index = Math.min(Math.max(from + distance, first), last);
    this.plot.setCursor({ left: this.plot.valToPos(xs[index], "x"), top: 0 }, true, true);
  }

  /** Show so many times as much, around the cursor. */
  #zoomBy(factor) {
    const all = this.#wholeRange;
    const [start, end] = this.shownRange;
    const middle = this.plot.data[0][this.plot.cursor.idx] ?? (start + end) / 2;
    const width = (end - start) * factor;
    const left = Math.max(all[0], middle - width * ((middle - start) / (end - start)));
    const right = Math.min(all[1], left + width);
    this.onZoom(left <= all[0] && right >= all[1] ? null : zoomable([left, right]));
  }

  /** Fill the legend with the last values that are seen, where no cursor chooses others; they may lie before the end. */
  #showLast() {
    const end = this.shownRange[1];
    const last = this.plot.data[0].findLastIndex((x) => x <= end);
    if (last < 0) return;
    const idxs = this.plot.data.map((values) => values.findLastIndex((value, index) => index <= last && isKnown(value)));
    // A line of one value has no last point.
    const ends = new Set(this.lines.flatMap(({ value }, index) => (isKnown(value) || idxs[1 + index] < 0 ? [] : idxs[1 + index])));
    if (ends.size) idxs[0] = ends.size === 1 ? [...ends][0] : null;
    this.plot.setLegend({ idxs });
  }

  #drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = getColour("--warn");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    for (const step of this.marks) {
      const x = plot.valToPos(step, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
    }
    ctx.stroke();
    ctx.restore();
  }

  #makeEdges({ label }) {
    const edge = { width: 0, points: { show: false }, class: "unlisted" };
    return [{ ...edge, label: `largest ${label}` }, { ...edge, label: `smallest ${label}` }];
  }

  #makeSeries(line) {
    const colour = line.isFaint ? mix(line.colour, FAINT_PERCENT) : getColour(line.colour);
    return {
      label: line.label,
      stroke: colour,
      width: line.dash || line.isFaint ? 1.5 : 2,
      dash: line.dash,
      class: line.isUnlisted ? "unlisted" : undefined,
      points: {
        show: (plot) => plot.data[0].length < (line.dash ? 2 : MAX_MARKED_POINTS),
        size: 5,
        fill: colour,
      },
      value: (plot, value, series, index) => this.#describe(line, value, index),
    };
  }

  /** Format a value for the legend, with the smallest and the largest one of its point. */
  #describe(line, value, index) {
    const text = this.format(value);
    if (!line.hasBand || !isKnown(index)) return text;
    const edge = 1 + this.lines.length + 2 * this.lines.filter(({ hasBand }) => hasBand).findIndex(({ label }) => label === line.label);
    const [most, least] = [this.plot?.data[edge][index], this.plot?.data[edge + 1][index]];
    return isKnown(most) ? `${text} (${this.format(least)} to ${this.format(most)})` : text;
  }
}

/** Ticks of a logarithmic value axis, of which each has its number. */
const logarithmic = { splits: listLogTicks, values: formatLogTicks, filter: (plot, ticks) => ticks };

const keepPositive = (value) => (value > 0 ? value : null);

/** A range that has a width. */
const zoomable = ([start, end]) => [start, Math.max(end, start + 1)];

/** Find the nearest index at which a curve has a point, known or not, null past its last one; joined curves have gaps
 * where others have points. */
function findNearest(values, index) {
  if (!values || !Number.isInteger(index)) return index;
  const after = values.findIndex((value, place) => place >= index && value !== undefined);
  if (after < 0) return null;
  const before = values.findLastIndex((value, place) => place <= index && value !== undefined);
  return before < 0 || after - index < index - before ? after : before;
}
