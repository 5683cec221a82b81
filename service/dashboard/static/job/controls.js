// The controls of all charts, which the address of the page keeps.
import { byId } from "../common/elements.js";
import { X } from "../charts/axes.js";
import { readSmoothing, SMOOTHING } from "../charts/smoothing.js";

const DECIMALS = 2;

/** State of the controls: {smoothing, isLogarithmic, x, areEach, zoom}, with `zoom` as [start, end] along the charts, or
 * null. */
export class Controls {
  /** onChange: called with the name of what has changed, whenever somebody has changed it. */
  constructor(onChange) {
    this.onChange = onChange;
    const query = new URLSearchParams(location.search);
    const zoom = ["from", "to"].map((name) => Number(query.get(name) ?? NaN));
    this.smoothing = readSmoothing(query.get("smoothing"));
    this.isLogarithmic = query.has("log");
    this.x = X[query.get("x")] ?? X.step;
    this.areEach = query.has("attempts");
    this.zoom = zoom[0] >= 0 && zoom[1] > zoom[0] ? zoom : null;
    this.#fill();
    this.#listen();
  }

  /** See a part of all charts; null for all of it. */
  zoomTo(zoom) {
    this.#set("zoom", zoom);
  }

  /** Show how many attempts there are to choose from. */
  showAttempts(numAttempts) {
    byId("attempts-control").hidden = numAttempts < 2;
  }

  #listen() {
    byId("smoothing").addEventListener("input", (event) => this.#set("smoothing", Number(event.target.value)));
    byId("log").addEventListener("change", (event) => this.#set("isLogarithmic", event.target.checked));
    byId("each").addEventListener("change", (event) => this.#set("areEach", event.target.checked));
    byId("reset").addEventListener("click", () => this.zoomTo(null));
    byId("x").addEventListener("change", (event) => this.#set("x", X[event.target.value]));
  }

  #set(name, value) {
    this[name] = value;
    this.#fill();
    this.#keep();
    this.onChange(name);
  }

  #fill() {
    byId("smoothing").value = this.smoothing;
    byId("smoothing-value").textContent = this.smoothing.toFixed(DECIMALS);
    byId("log").checked = this.isLogarithmic;
    byId("each").checked = this.areEach;
    byId("x").value = this.x.name;
    byId("zoom").hidden = this.zoom === null;
    if (this.zoom === null) return;
    const [start, end] = this.zoom.map((position) => this.x.format(position));
    byId("zoom-range").textContent = this.x === X.time ? `${start} to ${end}` : `${this.x.name} ${start} to ${end}`;
  }

  #keep() {
    const query = new URLSearchParams();
    if (this.smoothing !== SMOOTHING) query.set("smoothing", this.smoothing);
    if (this.isLogarithmic) query.set("log", "1");
    if (this.x !== X.step) query.set("x", this.x.name);
    if (this.areEach) query.set("attempts", "each");
    this.zoom?.forEach((position, index) => query.set(index ? "to" : "from", Number(position.toPrecision(9))));
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  }
}
