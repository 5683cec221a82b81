// Curves of a job, read once and then appended to.
import { get } from "../common/api.js";

const RESOLUTION = 800;

/** Curves over the same points: {steps, curves: {name: {last, mean, min, max}}}, with the starts of attempts. */
export class Curves {
  /** path: of the job. kind: "training" or "evaluation". names: of the curves. attempt: its number, to have all of it,
   * also what a later one has made void; null for the valid curve of all. range: [since, until], to have a part of the
   * steps alone, in finer points. */
  constructor(path, kind, names, { attempt = null, range = null } = {}) {
    const attempts = attempt === null ? "" : `&attempt=${attempt}`;
    this.path = `${path}/curves?resolution=${RESOLUTION}&names=${names.join(",")}${attempts}`;
    this.kind = kind;
    this.range = range;
    this.points = { steps: [], curves: {} };
    this.starts = [];
  }

  /** Read what is new; everything again where an attempt has begun, or points stand for more steps than before. */
  async update() {
    if (this.range) {
      const [from, until] = this.range;
      const part = await get(`${this.path}&since=${from}&until=${until}`);
      this.starts = part.starts;
      this.points = part[this.kind];
      return;
    }
    const since = this.points.steps.at(-1) ?? 0;
    const answer = await get(`${this.path}&since=${since}`);
    const isSame =
      JSON.stringify(answer.starts) === JSON.stringify(this.starts) &&
      answer[this.kind].steps_per_point === this.points.steps_per_point;
    if (since && !isSame) {
      this.points = { steps: [], curves: {} };
      return this.update();
    }
    this.starts = answer.starts;
    this.points = this.#append(answer[this.kind]);
  }

  /** Steps from which later attempts continued. */
  get marks() {
    return this.starts.filter((start) => start.attempt > 1).map((start) => start.step);
  }

  /** Values of a curve: means of points, or the values of single steps; null for each point without it. */
  get(name, statistic = "mean") {
    const curve = this.points.curves[name] ?? {};
    const values = curve[statistic] ?? (statistic === "mean" ? curve.last : null);
    return values ?? this.points.steps.map(() => null);
  }

  /** Whether a range, or the whole curve, is so long that a point stands for several steps. */
  get isCoarse() {
    return this.points.steps_per_point > 1;
  }

  #append(added) {
    const { steps, steps_per_point: width } = added;
    // The last point comes again, complete.
    const kept = this.points.steps.filter((step) => !steps.length || Math.ceil(step / width) < Math.ceil(steps[0] / width));
    const join = (name, statistic) => {
      const before = this.points.curves[name]?.[statistic] ?? this.points.steps.map(() => null);
      return [...before.slice(0, kept.length), ...(added.curves[name]?.[statistic] ?? steps.map(() => null))];
    };
    const curves = {};
    for (const known of [this.points.curves, added.curves]) {
      for (const [name, curve] of Object.entries(known)) {
        curves[name] ??= {};
        for (const statistic of Object.keys(curve)) curves[name][statistic] ??= curve[statistic] && join(name, statistic);
      }
    }
    return { steps_per_point: width, steps: [...kept, ...steps], curves };
  }
}
