// A heat map over the steps: a row for each curve, and colours of a logarithmic scale.
import { element } from "../common/elements.js";
import { UNKNOWN, integer, isKnown } from "../common/format.js";
import { getColour } from "./chart.js";
import { LogScale, findColour } from "./scale.js";

/** Heights of a row, by the largest number of rows that have it. */
const ROW_HEIGHTS = [[12, 26], [30, 20], [Infinity, 15]];
const NUM_STEPS_SHOWN = 5;
const FAR = 10;
const TIP_DISTANCE = 14;

/** Heat map of curves over the same steps. describe: writes what a cell holds: (value) => text. */
export class HeatMap {
  constructor(target, describe) {
    this.describe = describe;
    this.names = element("div", { class: "names", "aria-hidden": "true" });
    const label = "Heat map by layer and step: arrow keys choose a layer and a step";
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "heat map", "aria-label": label });
    this.mark = element("div", { class: "cell", hidden: "" });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.spoken = element("p", { class: "unseen", role: "status" });
    this.axis = element("div", { class: "steps", "aria-hidden": "true" });
    this.legend = element("div", { class: "scale" });
    this.field = element("div", { class: "field" }, this.canvas, this.mark, this.tip);
    target.replaceChildren(this.legend, element("div", { class: "heatmap" }, this.names, this.field, this.axis), this.spoken);
    this.cell = null;
    this.rows = [];
    new ResizeObserver(() => this.#draw()).observe(this.field);
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.#point(event));
    for (const name of ["pointerleave", "blur"]) this.canvas.addEventListener(name, () => this.#choose(null));
    this.canvas.addEventListener("keydown", (event) => this.#press(event));
  }

  /** Draw rows: [{name, values}], over steps. The map ends at step `numSteps`. */
  show(rows, steps, numSteps) {
    this.steps = steps;
    this.end = Math.max(numSteps ?? 0, steps.at(-1) ?? 0, 1);
    const names = rows.map(({ name }) => name);
    if (names.join("\n") !== this.rows.map(({ name }) => name).join("\n")) {
      this.names.replaceChildren(...names.map((name) => element("span", { title: name }, name)));
    }
    this.rows = rows;
    this.scale = new LogScale(rows.flatMap(({ values }) => values));
    this.rowHeight = ROW_HEIGHTS.find(([most]) => rows.length <= most)[1];
    this.names.style.lineHeight = `${this.rowHeight}px`;
    this.canvas.dataset.rows = rows.length;
    this.canvas.dataset.points = steps.length;
    const ticks = [...Array(NUM_STEPS_SHOWN).keys()].map((number) => Math.round((this.end * number) / (NUM_STEPS_SHOWN - 1)));
    this.axis.replaceChildren(...ticks.map((step, index) => element("span", {}, index ? integer(step) : `step ${step}`)));
    this.#showScale();
    this.#draw();
    this.#choose(this.cell);
  }

  #showScale() {
    const strip = element("canvas", { width: "256", height: "1", "aria-hidden": "true" });
    const context = strip.getContext("2d");
    const colours = context.createImageData(256, 1);
    for (let place = 0; place < 256; place += 1) colours.data.set([...findColour(place / 255), 255], 4 * place);
    context.putImageData(colours, 0, 0);
    const ticks = element("div", { class: "ticks" });
    for (const tick of this.scale.listTicks()) {
      const label = element("span", {}, tick >= 0.001 && tick <= 1000 ? String(Number(tick.toPrecision(1))) : tick.toExponential(0));
      label.style.left = `${100 * this.scale.find(tick)}%`;
      ticks.append(label);
    }
    this.legend.replaceChildren(element("div", { class: "strip" }, strip, ticks));
  }

  #draw() {
    const width = this.field.clientWidth;
    if (!width || !this.rows.length) return;
    const height = this.rows.length * this.rowHeight;
    const columns = Math.max(1, Math.round(width * devicePixelRatio));
    Object.assign(this.canvas, { width: columns, height: Math.round(height * devicePixelRatio) });
    this.canvas.style.height = `${height}px`;
    // One pixel for each cell, which is then drawn as high as a row.
    const small = new OffscreenCanvas(columns, this.rows.length);
    const pixels = new ImageData(columns, this.rows.length);
    for (let column = 0; column < columns; column += 1) {
      const index = this.#findIndex(((column + 0.5) / columns) * this.end);
      if (index === null) continue;
      this.rows.forEach(({ values }, row) => {
        const place = this.scale.find(values[index]);
        if (place !== null) pixels.data.set([...findColour(place), 255], 4 * (row * columns + column));
      });
    }
    small.getContext("2d").putImageData(pixels, 0, 0);
    const context = this.canvas.getContext("2d");
    context.fillStyle = getColour("--grey-tint");
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, this.canvas.width, this.canvas.height);
  }

  /** Find the point that a step belongs to: points are named for their last step; null after the last one. */
  #findIndex(step) {
    let [low, high] = [0, this.steps.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low < this.steps.length ? low : null;
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    const index = this.#findIndex(((event.clientX - box.left) / box.width) * this.end);
    const row = Math.min(this.rows.length - 1, Math.max(0, Math.floor((event.clientY - box.top) / this.rowHeight)));
    this.#choose(index === null ? null : { row, index });
  }

  #press(event) {
    const [rows, points] = [this.rows.length - 1, this.steps.length - 1];
    const far = event.shiftKey ? FAR : 1;
    const moves = {
      ArrowLeft: [0, -far],
      ArrowRight: [0, far],
      ArrowUp: [-far, 0],
      ArrowDown: [far, 0],
      Home: [0, -points],
      End: [0, points],
    };
    if (event.key === "Escape") this.#choose(null);
    if (!(event.key in moves) || points < 0) return;
    event.preventDefault();
    const [down, right] = this.cell ? moves[event.key] : [0, 0];
    const { row, index } = this.cell ?? { row: 0, index: points };
    const within = (value, most) => Math.min(most, Math.max(0, value));
    this.#choose({ row: within(row + down, rows), index: within(index + right, points) });
    this.spoken.textContent = this.tip.textContent;
  }

  #choose(cell) {
    this.cell = cell;
    this.mark.hidden = this.tip.hidden = cell === null;
    if (cell === null) return;
    const { name, values } = this.rows[cell.row];
    const value = values[cell.index];
    this.tip.textContent = `${name} · step ${integer(this.steps[cell.index])} · ${isKnown(value) ? this.describe(value) : UNKNOWN}`;
    const width = this.field.clientWidth;
    const [left, right] = [this.steps[cell.index - 1] ?? 0, this.steps[cell.index]].map((step) => (step / this.end) * width);
    const top = cell.row * this.rowHeight;
    Object.assign(this.mark.style, { left: `${left}px`, width: `${Math.max(right - left, 3)}px`, top: `${top}px`, height: `${this.rowHeight}px` });
    const isRight = left > width / 2;
    const isLow = top > this.canvas.clientHeight / 2;
    Object.assign(this.tip.style, {
      left: isRight ? "auto" : `${right + TIP_DISTANCE}px`,
      right: isRight ? `${width - left + TIP_DISTANCE}px` : "auto",
      top: isLow ? "auto" : `${top}px`,
      bottom: isLow ? `${this.canvas.clientHeight - top - this.rowHeight}px` : "auto",
    });
  }
}
