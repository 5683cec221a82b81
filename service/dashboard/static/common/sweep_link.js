// Links from jobs to what they have in common with others: all jobs of a sweep on one page.
import { element } from "./elements.js";

/** Name of the label that `dlrm sweep` and `dlrm tune` give to all jobs of one experiment. */
export const SWEEP_LABEL = "sweep";

/** Return the address of the scatter of all jobs with a label. */
export const scatterAddress = (name, value) => `/compare?${new URLSearchParams({ label: `${name}:${value}` })}`;

/** Create the link from a job to the scatter of its sweep; null if it belongs to none. */
export function sweepLink(job) {
  const name = job.labels[SWEEP_LABEL];
  return name === undefined ? null : element("a", { href: scatterAddress(SWEEP_LABEL, name), class: "sweep" }, `all jobs of ${name}`);
}
