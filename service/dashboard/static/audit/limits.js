// The limits of a quota in words.
import { binarySize, count, isKnown } from "../common/format.js";

const countOf = (noun) => (value) => count(value, noun);
const FORMATS = {
  num_cores: countOf("core"),
  memory_bytes: binarySize,
  num_gpus: countOf("GPU"),
  num_running: countOf("running job"),
  num_queued: countOf("waiting job"),
};

/** Format limits, such as `64 cores, 8 GPUs`; null sets none. */
export function formatLimits(limits) {
  const known = Object.entries(FORMATS).filter(([name]) => isKnown(limits[name]));
  return known.map(([name, format]) => format(limits[name])).join(", ") || "no limits";
}
