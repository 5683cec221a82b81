// Smoothing of curves.
import { isKnown } from "../common/format.js";

export const SMOOTHING = 0.9;
const MAX_SMOOTHING = 0.99;

/** Read a weight from a parameter of the address; the usual one if it is null or no weight. */
export function readSmoothing(text) {
  const weight = Number(text ?? SMOOTHING);
  return weight >= 0 && weight <= MAX_SMOOTHING ? weight : SMOOTHING;
}

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
