// A chart of an amount over time: the mean as an area, the largest amount as a line, the limit as a dashed line.
import { element } from "../common/elements.js";
import { shape } from "../common/shape.js";
import { nearTime } from "../common/times.js";

const WIDTH = 560;
const HEIGHT = 150;
const BOTTOM = 18;
const TOP = 8;
const NUM_TICKS = 4;

/** Chart of one amount in a <figure>. format: formats an amount with its unit. */
export class AreaChart {
  constructor(figure, title, format) {
    this.format = format;
    this.title = title;
    this.note = element("small");
    this.readout = element("p", { class: "readout hint" });
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", preserveAspectRatio: "none" });
    this.times = element("div", { class: "times", "aria-hidden": "true" });
    figure.replaceChildren(element("figcaption", {}, title, " ", this.note), this.svg, this.times, this.readout);
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => this.#summarize());
  }

  /** Draw a curve {mean, max} whose points begin at `since`, each `seconds` long. limit: all there is; null if unknown. */
  show(curve, { since, until, seconds, limit = null }) {
    Object.assign(this, { curve, seconds, since: Date.parse(since), until: Date.parse(until) });
    const most = Math.max(limit ?? 0, ...curve.max, 1);
    const x = (index) => Math.min((index * seconds * 1000) / (this.until - this.since), 1) * WIDTH;
    const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
    const outline = (values) => values.map((value, index) => `${x(index).toFixed(1)} ${y(value).toFixed(1)} H${x(index + 1).toFixed(1)}`).join(" L");
    const floor = HEIGHT - BOTTOM;
    const parts = [shape("path", { class: "base", d: `M0 ${floor} H${WIDTH}` })];
    if (limit !== null) parts.push(shape("path", { class: "limit", d: `M0 ${y(limit)} H${WIDTH}` }));
    parts.push(shape("path", { class: "mean", d: `M0 ${floor} L${outline(curve.mean)} V${floor} Z` }));
    parts.push(shape("path", { class: "max", d: `M${outline(curve.max)}` }));
    this.cursor = shape("path", { class: "cursor", d: "" });
    this.svg.replaceChildren(...parts, this.cursor);
    this.note.textContent = limit === null ? `most ${this.format(Math.max(...curve.max))}` : `of ${this.format(limit)}`;
    this.times.replaceChildren(...Array.from({ length: NUM_TICKS + 1 }, (_, index) => this.#makeTick(index / NUM_TICKS)));
    this.#summarize();
  }

  #makeTick(fraction) {
    const text = fraction === 1 ? "now" : nearTime(this.since + fraction * (this.until - this.since));
    return element("span", {}, text);
  }

  #summarize() {
    const { mean, max } = this.curve;
    const average = mean.reduce((sum, value) => sum + value, 0) / Math.max(mean.length, 1);
    const words = `mean ${this.format(round(average))}, most ${this.format(Math.max(0, ...max))}`;
    this.readout.textContent = words;
    this.cursor.setAttribute("d", "");
    this.svg.setAttribute("aria-label", `${this.title}: ${words}, since ${nearTime(this.since)}`);
  }

  #point(event) {
    const box = this.svg.getBoundingClientRect();
    const time = this.since + ((event.clientX - box.left) / box.width) * (this.until - this.since);
    const index = Math.floor((time - this.since) / 1000 / this.seconds);
    if (!(index in this.curve.mean)) return;
    const mean = this.format(round(this.curve.mean[index]));
    this.readout.textContent = `${nearTime(this.since + index * this.seconds * 1000)}: mean ${mean}, most ${this.format(this.curve.max[index])}`;
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    this.cursor.setAttribute("d", `M${at.toFixed(1)} ${TOP} V${HEIGHT - BOTTOM}`);
  }
}

/** Round an amount to what is legible: 3.4 cores, 120 GPUs; bytes are rounded by their format. */
const round = (value) => (value < 10 ? Math.round(value * 10) / 10 : Math.round(value));
