// The two curves that are looked at first, small; the tab of curves has them large, with all others.
import { Chart } from "../charts/chart.js";
import { Curves } from "../charts/curves.js";
import { byId } from "../common/elements.js";
import { isKnown } from "../common/format.js";
import { findPlannedEnd } from "../common/state.js";

const LINES = {
  loss: [{ label: "loss", colour: "--accent" }],
  auc: [{ label: "AUC", colour: "--good" }],
};
/** Number of points from which on there is a curve to see. */
const MIN_POINTS = 2;
/** Time between two looks while a job trains: nobody watches single steps here. */
const PAUSE_MILLISECONDS = 5000;

export class Previews {
  /** panel: element with both figures. path: of the job in the API. */
  constructor(panel, path) {
    this.panel = panel;
    this.curves = { loss: new Curves(path, "training", ["loss"]), auc: new Curves(path, "evaluation", ["auc"]) };
    this.charts = {};
    this.lookedAt = 0;
  }

  /** Read what is new, unless that was done just now, and show the curves that have points. */
  async update(job, { isLast }) {
    if (!isLast && Date.now() < this.lookedAt + PAUSE_MILLISECONDS) return;
    await Promise.all(Object.values(this.curves).map((curves) => curves.update()));
    this.lookedAt = Date.now();
    for (const [name, curves] of Object.entries(this.curves)) this.#draw(name, curves, findPlannedEnd(job));
  }

  #draw(name, curves, numSteps) {
    const { steps } = curves.points;
    if (!this.charts[name] && curves.get(name).filter(isKnown).length < MIN_POINTS) return;
    const target = byId(`${name}-preview`);
    this.panel.hidden = target.parentElement.hidden = false;
    this.charts[name] ??= new Chart(target, LINES[name]);
    this.charts[name].show([steps, curves.get(name)], numSteps, curves.marks);
  }
}
