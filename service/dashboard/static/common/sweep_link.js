// Links from jobs to what they have in common with others: all jobs of a sweep on one page.
import { element } from "./elements.js";

/** Name of the label that `dlrm sweep` gives to all its jobs. */
export const SWEEP_LABEL = "sweep";

/** Return the address of the scatter of all jobs with a label, `name:value`. */
export const scatterAddress = (label) => `/compare?${new URLSearchParams({ label })}`;

/** Return the address of the scatter of a sweep. */
export const sweepAddress = (name) => scatterAddress(`${SWEEP_LABEL}:${name}`);

/** Create the link from a job to the scatter of its sweep; null if it belongs to none. */
export function sweepLink(job) {
  const name = job.labels[SWEEP_LABEL];
  return name === undefined ? null : element("a", { href: sweepAddress(name) }, `all jobs of ${name} as points`);
}
