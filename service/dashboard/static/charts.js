// Curves over the step, drawn by uPlot in the colours of the page.
import { figure, rate } from "./format.js";

const HEIGHT = 230;
const POINTS_SHOWN_BELOW = 40;
const LOGARITHMIC = 3;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The axis of values; around a single value a tenth of it, where uPlot would begin at 0. */
function valueRange(plot, min, max) {
  if (min === null) return [0, 1];
  if (min < max) return uPlot.rangeNum(min, max, 0.1, true);
  const margin = Math.abs(min) / 10 || 1;
  return [min - margin, max + margin];
}

/** The same in whole powers of ten. */
const tenfoldRange = (plot, min, max) => (min === null ? [1, 10] : uPlot.rangeLog(min, max, 10, true));

const tenfoldValues = (plot, values) => values.map((value) => (value === null ? "" : power(value)));
const power = (value) => (value < 0.001 ? value.toExponential() : rate(value));

/**
 * Curves over the step. `lines`: [{label, colour, dash}], colours as names of CSS variables.
 * isLogarithmic: values are all above 0. format: of values in the legend.
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
   * data: [steps, values of the first line, …], as uPlot takes it; the axis ends at the last step of the run.
   * marks: steps at which a line stands, where an attempt went on.
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
      stroke: colour("--muted"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1 },
      font: "11px system-ui, sans-serif",
    };
    const options = {
      width: this.target.clientWidth,
      height: HEIGHT,
      scales: {
        x: { time: false, range: () => [0, Math.max(this.numSteps ?? 0, ...this.data[0].slice(-1), 1)] },
        y: this.isLogarithmic ? { distr: LOGARITHMIC, range: tenfoldRange } : { range: valueRange },
      },
      axes: [{ ...axis, size: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6] },
        { ...axis, size: 52, values: this.isLogarithmic ? tenfoldValues : undefined }],
      series: [{ label: "step" }, ...this.lines.map((line) => this.#series(line))],
      cursor: { drag: { x: false, y: false } },
      hooks: { drawAxes: [(plot) => this.#drawMarks(plot)] },
    };
    this.plot = new uPlot(options, this.data, this.target);
  }

  #drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour("--warn");
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

  #series(line) {
    return {
      label: line.label,
      stroke: colour(line.colour),
      width: line.dash ? 1.5 : 2,
      dash: line.dash,
      points: {
        show: (plot) => plot.data[0].length < (line.dash ? 2 : POINTS_SHOWN_BELOW),
        size: 5,
        fill: colour(line.colour),
      },
      value: (plot, value) => this.format(value),
    };
  }
}
