// Scatter as SVG: each point is a link to its job. Arrow keys go from point to point; a space chooses one.
import { shape } from "../common/shape.js";

const HEIGHT = 420;
const LEFT = 64;
const RIGHT = 16;
const TOP = 12;
const BOTTOM = 48;
const RADIUS = 5;
const LARGE_RADIUS = 8;
const MAX_TICK_CHARACTERS = 14;
const CHARACTER_WIDTH = 6.2;

const shorten = (text) => (text.length > MAX_TICK_CHARACTERS ? `${text.slice(0, MAX_TICK_CHARACTERS - 1)}…` : text);

/** Scatter in `target`. look: called with the point under the pointer or focus, or null; choose: with the id of a point. */
export class Plot {
  constructor(target, { look, choose }) {
    this.target = target;
    this.look = look;
    this.choose = choose;
    this.content = null;
    new ResizeObserver(() => this.content && this.#draw()).observe(target);
    target.addEventListener("keydown", (event) => this.#press(event));
    target.addEventListener("pointerleave", () => look(null));
  }

  /** Draw points [{id, label, x, y, colour, isChosen}] and means [{x, y, low, high, label, colour}], all between axes.
   * x and y: values on their axes. */
  show(content) {
    this.content = content;
    this.#draw();
  }

  #draw() {
    const { xAxis, yAxis, xTitle, yTitle, points, means } = this.content;
    const width = this.target.clientWidth;
    if (!width) return;
    this.width = width;
    const focused = this.target.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    this.toX = (value) => LEFT + xAxis.at(value) * (width - LEFT - RIGHT);
    this.toY = (value) => HEIGHT - BOTTOM - yAxis.at(value) * (HEIGHT - TOP - BOTTOM);
    const isPlaced = ({ x, y }) => xAxis.at(x) !== null && yAxis.at(y) !== null;
    this.placed = points.filter(isPlaced).sort((one, other) => xAxis.at(one.x) - xAxis.at(other.x) || yAxis.at(one.y) - yAxis.at(other.y));
    this.nodes = this.placed.map((point, index) => this.#makePoint(point, focused ? point.id === focused : index === 0));
    const svg = shape("svg", { width, height: HEIGHT, role: "group", "aria-label": `${yTitle} against ${xTitle}: ${this.placed.length} jobs` });
    svg.append(this.#makeFrame(xAxis, yAxis, xTitle, yTitle), ...means.filter(isPlaced).map((mean) => this.#makeMean(mean)), ...this.nodes);
    this.target.replaceChildren(svg);
    this.target.dataset.points = this.placed.length;
    if (focused) this.nodes.find((node) => node.dataset.id === focused)?.focus();
  }

  #makeFrame(xAxis, yAxis, xTitle, yTitle) {
    const frame = shape("g", { class: "frame", "aria-hidden": "true" });
    const right = this.width - RIGHT;
    const bottom = HEIGHT - BOTTOM;
    for (const { at, text } of yAxis.ticks) {
      const y = bottom - at * (bottom - TOP);
      frame.append(shape("line", { x1: LEFT, x2: right, y1: y, y2: y }), shape("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, text.slice(0, 9)));
    }
    const longest = Math.max(0, ...xAxis.ticks.map(({ text }) => shorten(text).length));
    const every = Math.ceil((xAxis.ticks.length * (longest + 2) * CHARACTER_WIDTH) / (right - LEFT));
    xAxis.ticks.forEach(({ at, text }, index) => {
      const x = LEFT + at * (right - LEFT);
      frame.append(shape("line", { x1: x, x2: x, y1: TOP, y2: bottom }));
      if (index % every === 0) frame.append(shape("text", { x, y: bottom + 16, "text-anchor": "middle" }, shorten(text)));
    });
    const words = (title, axis) => title + (axis.kind === "logarithmic" ? " (logarithmic)" : "");
    frame.append(shape("text", { x: (LEFT + right) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "title" }, words(xTitle, xAxis)));
    const middle = (TOP + bottom) / 2;
    frame.append(shape("text", { x: 14, y: middle, "text-anchor": "middle", class: "title", transform: `rotate(-90 14 ${middle})` }, words(yTitle, yAxis)));
    return frame;
  }

  #makePoint(point, isFirst) {
    const circle = shape("circle", { cx: this.toX(point.x), cy: this.toY(point.y), r: point.isChosen ? LARGE_RADIUS : RADIUS });
    const attributes = { href: `/jobs/${encodeURIComponent(point.id)}`, "aria-label": point.label, tabindex: isFirst ? 0 : -1, "data-id": point.id };
    const node = shape("a", { ...attributes, class: point.isChosen ? "point chosen" : "point" }, shape("title", {}, point.label), circle);
    node.style.setProperty("--own", point.colour);
    node.addEventListener("pointerenter", () => this.look(point));
    node.addEventListener("focus", () => this.look(point));
    return node;
  }

  #makeMean(mean) {
    const x = this.toX(mean.x);
    const y = this.toY(mean.y);
    const node = shape("g", { class: "mean" }, shape("title", {}, mean.label));
    node.append(shape("line", { x1: x, x2: x, y1: this.toY(mean.low), y2: this.toY(mean.high) }));
    for (const end of [mean.low, mean.high]) node.append(shape("line", { x1: x - 5, x2: x + 5, y1: this.toY(end), y2: this.toY(end) }));
    node.append(shape("rect", { x: x - 4, y: y - 4, width: 8, height: 8, transform: `rotate(45 ${x} ${y})` }));
    node.style.setProperty("--own", mean.colour);
    return node;
  }

  #press(event) {
    const index = this.nodes.indexOf(document.activeElement);
    if (index < 0) return;
    if (event.key === " ") {
      event.preventDefault();
      this.choose(this.placed[index].id);
      return;
    }
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = this.nodes[(index + steps[event.key] + this.nodes.length) % this.nodes.length];
    this.nodes[index].setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  }
}
