// Where the steps of a curve lie along a chart: by step, by samples, or by time.
import { isKnown } from "../common/format.js";
import { X } from "./axes.js";

/** Curves of training that positions are taken from. */
export const POSITION_NAMES = ["num_samples", "time"];

/** Positions along a chart of the points of a training curve. x: one of `X`. origin: seconds since 1970 at which the time
 * along a chart begins. */
export class Positions {
  constructor(training, x, origin) {
    this.x = x;
    this.origin = origin;
    const { steps } = training.points;
    this.values = x === X.samples ? training.get("num_samples", "last") : steps;
    if (x === X.time) this.values = this.locate(training);
    this.steps = steps;
    const start = x === X.time ? [] : [[0, 0]];
    this.known = [...start, ...steps.map((step, index) => [step, this.values[index]]).filter(([, value]) => isKnown(value))];
  }

  /** List the positions of the points of a curve, null where one is unknown. */
  locate(curves) {
    if (this.x === X.time) {
      return curves.get("time", "last").map((time) => (isKnown(time) ? Math.max(0, time - this.origin) : null));
    }
    return curves.points.steps === this.steps ? this.values : curves.points.steps.map((step) => this.find(step));
  }

  /** Find the position of a step; null if none is known. */
  find(step) {
    return this.x === X.step ? step : interpolate(this.known, step, 0);
  }

  /** Find the step at a position, which may lie between two steps. */
  findStep(position) {
    return this.x === X.step ? position : (interpolate(this.known, position, 1) ?? 0);
  }
}

/** Interpolate in pairs that grow: from the number at `from` (0 or 1) of a pair to its other one. */
function interpolate(pairs, value, from) {
  if (!pairs.length) return null;
  let [low, high] = [0, pairs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (pairs[middle][from] <= value) low = middle;
    else high = middle;
  }
  const [one, other] = [pairs[low], pairs[high]];
  const width = other[from] - one[from];
  const fraction = width > 0 ? Math.min(1, Math.max(0, (value - one[from]) / width)) : 1;
  return one[1 - from] + fraction * (other[1 - from] - one[1 - from]);
}
