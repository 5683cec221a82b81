// The batch of a job.
import { isKnown } from "../common/format.js";

/** Find the batch of a job in samples: that of the last step, or else the largest one; null where it is not decided yet. */
export function findBatch({ spec, derived, progress }) {
  if (isKnown(progress.global_size)) return progress.global_size;
  const size = spec.batch.global_size;
  return Number.isFinite(size) ? size : (derived.find(({ name }) => name === "batch.global_size")?.value ?? null);
}
