// Smoothing of curves.
import { isKnown } from "../common/format.js";

/** Compute the exponential moving average of values, with its bias towards 0 at the beginning corrected: y(n) is the mean
 * of the n known values so far, each weighted by `weight` once for every later one. Unknown values stay unknown. */
export function smooth(values, weight) {
  if (weight === 0) return values;
  let sum = 0;
  let weights = 0;
  return values.map((value) => {
    if (!isKnown(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return sum / weights;
  });
}
