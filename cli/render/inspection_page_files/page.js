// The plots of the report: all drawn when the page opens, in view or not (300 take half a second of one core), so that it
// can be printed and searched at once; and again when the colours of the page change.
const report = JSON.parse(document.getElementById("report").textContent);
const HEIGHT = 220;
const LINEAR = 1;
const LOGARITHMIC = 3;

let colours = {};
const colour = (name) => colours[name];

function axis(size, label, values) {
  return {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: "11px system-ui, sans-serif",
    labelFont: "11px system-ui, sans-serif",
    labelSize: 16,
    size,
    label,
    values,
  };
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const short = (plot, values) => values.map((value) => (value === null ? "" : compact.format(value)));
const powersOfTen = (plot, values) => values.map((value) => (value && Math.log10(value) % 1 === 0 ? compact.format(value) : ""));

/** Return the ends of an axis, which differ even if all values are equal. */
const makeRange = (low, high) => (low < high ? [low, high] : [low - 1, high + 1]);

/** Plots by name; each function returns the data of its plot for uPlot, and the options without the size. */
const plots = {
  rate() {
    const parts = report.parts;
    const rates = parts.map((part) => (part.label_rate === null ? null : 100 * part.label_rate));
    const highest = Math.max(...rates.filter((rate) => rate !== null));
    return {
      data: [parts.map((part, index) => index + 1), rates],
      scales: { x: { time: false, range: [0.5, parts.length + 0.5] }, y: { range: [0, highest * 1.2 || 1] } },
      axes: [axis(34, "tenth of the rows", short), axis(52, "label rate, %", short)],
      series: [{ label: "tenth" }, line("label rate, %", true)],
    };
  },
  curve(index) {
    const points = report.categorical[index].curve;
    const ranks = points.map(([rank]) => rank);
    const counts = points.map(([, count]) => count);
    const tenfold = (values) => [1, 10 ** Math.max(1, Math.ceil(Math.log10(Math.max(1, ...values))))];
    return {
      data: [ranks, counts],
      scales: {
        x: { time: false, distr: LOGARITHMIC, range: tenfold(ranks) },
        y: { distr: LOGARITHMIC, range: tenfold(counts) },
      },
      axes: [axis(34, "rank", powersOfTen), axis(52, "occurrences", powersOfTen)],
      series: [{ label: "rank" }, line("occurrences", points.length < 40)],
    };
  },
  histogram(index) {
    const { edges, bars } = report.dense[index];
    const middles = bars.map((_, bar) => (edges[bar] + edges[bar + 1]) / 2);
    return {
      data: [middles, bars],
      scales: {
        x: { time: false, distr: LINEAR, range: makeRange(edges[0], edges[edges.length - 1]) },
        y: { range: [0, Math.max(1, ...bars) * 1.05] },
      },
      axes: [axis(34, "value", short), axis(52, "rows", short)],
      series: [
        { label: "value" },
        {
          label: "rows",
          stroke: colour("--accent"),
          fill: colour("--accent"),
          paths: uPlot.paths.bars({ size: [0.9, 40] }),
          points: { show: false },
        },
      ],
    };
  },
};

function line(label, hasPoints) {
  return {
    label,
    stroke: colour("--accent"),
    width: 2,
    points: { show: hasPoints, size: 5, fill: colour("--accent") },
  };
}

const drawn = new Map();

function draw(target, width) {
  drawn.get(target)?.destroy();
  const { data, ...options } = plots[target.dataset.plot](Number(target.dataset.index));
  const shape = { width, height: HEIGHT, cursor: { drag: { x: false, y: false } } };
  drawn.set(target, new uPlot({ ...shape, ...options }, data, target));
  target.dataset.points = data[0].length;
}

function drawAll() {
  // Looked up for all plots before the first one is drawn: after each the browser would lay out the page anew.
  const style = getComputedStyle(document.documentElement);
  colours = Object.fromEntries(["--muted", "--line", "--accent"].map((name) => [name, style.getPropertyValue(name).trim()]));
  const targets = [...document.querySelectorAll(".plot")].map((target) => [target, target.clientWidth]);
  for (const [target, width] of targets) draw(target, width);
}

const resizing = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const width = target.clientWidth;
    // The width that it was drawn with is reported too, once.
    if (drawn.get(target).width !== width) drawn.get(target).setSize({ width, height: HEIGHT });
  }
});
drawAll();
for (const target of drawn.keys()) resizing.observe(target);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
