// The limits of a quota in words.
import { binarySize, integer, isKnown } from "../common/format.js";

const count = (noun) => (value) => `${integer(value)} ${noun}${value === 1 ? "" : "s"}`;
const FORMATS = {
  num_cores: count("core"),
  memory_bytes: binarySize,
  num_gpus: count("GPU"),
  num_running: count("running job"),
  num_queued: count("waiting job"),
};

/** Format limits, such as `64 cores, 8 GPUs`; null sets none. */
export function formatLimits(limits) {
  const known = Object.entries(FORMATS).filter(([name]) => isKnown(limits[name]));
  return known.map(([name, format]) => format(limits[name])).join(", ") || "no limits";
}
