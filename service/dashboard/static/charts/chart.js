// Curves over the step, drawn by uPlot in the colours of the page.
import { figure, rate } from "../common/format.js";

const HEIGHT = 230;
const MAX_MARKED_POINTS = 40;
const LOGARITHMIC = 3;
const BAND_PERCENT = 18;

const getColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Range of the value axis; a single value gets a tenth of it on each side, where uPlot would begin at 0. */
function getValueRange(plot, min, max) {
  if (min === null) return [0, 1];
  if (min < max) return uPlot.rangeNum(min, max, 0.1, true);
  const margin = Math.abs(min) / 10 || 1;
  return [min - margin, max + margin];
}

/** Range of a logarithmic value axis, in whole powers of ten. */
const getLogRange = (plot, min, max) => (min === null ? [1, 10] : uPlot.rangeLog(min, max, 10, true));

const formatLogTicks = (plot, values) => values.map((value) => (value === null ? "" : formatPower(value)));
const formatPower = (value) => (value < 0.001 ? value.toExponential() : rate(value));

/**
 * Chart of curves over the step. lines: [{label, colour, dash, hasBand}], colours as names of CSS variables. The data of
 * the largest and smallest values around a line with a band follow the data of all lines.
 * isLogarithmic: all values are above 0. format: function that formats values in the legend.
 */
export class Chart {
  constructor(target, lines, { isLogarithmic = false, format = figure } = {}) {
    this.target = target;
    this.lines = lines;
    this.isLogarithmic = isLogarithmic;
    this.format = format;
    this.data = null;
    const redraw = () => this.data && this.#draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(() => this.plot?.setSize({ width: target.clientWidth, height: HEIGHT })).observe(target);
  }

  /**
   * Draw `data`: [steps, values of the first line, …], as uPlot expects it. The axis ends at step `numSteps`.
   * marks: steps with a vertical line, from which an attempt continued.
   */
  show(data, numSteps, marks = []) {
    const isFirst = this.data === null;
    this.data = data;
    this.marks = marks;
    this.target.dataset.marks = marks.join(" ");
    this.numSteps = numSteps;
    this.target.dataset.points = data[0].length;
    if (isFirst) this.#draw();
    else this.plot.setData(data);
  }

  #draw() {
    this.plot?.destroy();
    const axis = {
      stroke: getColour("--muted"),
      grid: { stroke: getColour("--line"), width: 1 },
      ticks: { stroke: getColour("--line"), width: 1 },
      font: "11px system-ui, sans-serif",
    };
    const banded = this.lines.filter((line) => line.hasBand);
    const options = {
      width: this.target.clientWidth,
      height: HEIGHT,
      scales: {
        x: { time: false, range: () => [0, Math.max(this.numSteps ?? 0, ...this.data[0].slice(-1), 1)] },
        y: this.isLogarithmic ? { distr: LOGARITHMIC, range: getLogRange } : { range: getValueRange },
      },
      axes: [{ ...axis, size: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6] },
        { ...axis, size: 52, values: this.isLogarithmic ? formatLogTicks : undefined }],
      series: [{ label: "step" }, ...this.lines.map((line) => this.#makeSeries(line)), ...banded.flatMap((line) => this.#makeEdges(line))],
      bands: banded.map((line, index) => {
        const edge = 1 + this.lines.length + 2 * index;
        return { series: [edge, edge + 1], fill: `color-mix(in srgb, ${getColour(line.colour)} ${BAND_PERCENT}%, transparent)` };
      }),
      cursor: { drag: { x: false, y: false } },
      hooks: { drawAxes: [(plot) => this.#drawMarks(plot)] },
    };
    this.plot = new uPlot(options, this.data, this.target);
  }

  #drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = getColour("--warn");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const step of this.marks) {
      const x = plot.valToPos(step, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  #makeEdges({ label }) {
    const edge = { width: 0, points: { show: false }, value: (plot, value) => this.format(value) };
    return [{ ...edge, label: `largest ${label}` }, { ...edge, label: `smallest ${label}` }];
  }

  #makeSeries(line) {
    return {
      label: line.label,
      stroke: getColour(line.colour),
      width: line.dash ? 1.5 : 2,
      dash: line.dash,
      points: {
        show: (plot) => plot.data[0].length < (line.dash ? 2 : MAX_MARKED_POINTS),
        size: 5,
        fill: getColour(line.colour),
      },
      value: (plot, value) => this.format(value),
    };
  }
}
