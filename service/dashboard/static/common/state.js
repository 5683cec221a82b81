// What a job is doing, in words.
import { duration, estimate, integer, isKnown } from "./format.js";

const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
export const hasEnded = (job) => ENDED.has(job.state);

/** Least part of its steps after which charts leave room for the rest. */
const MIN_STARTED = 0.1;

/** Return the planned last step of a run that is well on its way there. Charts of others end at their last point. */
export function findPlannedEnd(job) {
  const { step, num_steps } = job.progress;
  return !hasEnded(job) && step >= MIN_STARTED * num_steps ? num_steps : undefined;
}

const SELF_EVIDENT = new Set(["RUNNING", "SUCCEEDED"]);

/** Format a reason such as `waiting_for_cpu`; empty where the state is enough. */
export function reasonText(job) {
  return job.reason && !SELF_EVIDENT.has(job.state) ? job.reason.replaceAll("_", " ") : "";
}

function restartText(job) {
  const seconds = (Date.parse(job.restarts_at) - Date.now()) / 1000;
  return `attempt ${job.num_attempts + 1} starts ${seconds > 0 ? `in ${duration(seconds)}` : "now"}`;
}

/** Phases before the first step and after the last one, whose messages say how far they are. */
const PHASES_WITHOUT_STEPS = new Set(["starting", "preparing", "loading", "building", "finishing"]);

/** Describe the progress of a job: phase, its message, step and time left. */
export function progressText(job) {
  const { phase, message, step, num_steps, eta_seconds } = job.progress;
  const parts = [];
  const isStarted = job.state === "STARTING" || job.state === "RUNNING";
  if (isStarted && phase !== "training") parts.push(phase ?? "starting");
  if (isStarted && PHASES_WITHOUT_STEPS.has(phase)) {
    const left = phase === "finishing" && isKnown(eta_seconds) ? `about ${estimate(eta_seconds)} left` : "";
    return [...parts, message, left].filter(Boolean).join(" · ");
  }
  if (isKnown(step) && num_steps) parts.push(`step ${integer(step)} of ${integer(num_steps)}`);
  if (isStarted && isKnown(eta_seconds)) parts.push(`${estimate(eta_seconds)} left`);
  if (isKnown(job.restarts_at)) parts.push(restartText(job));
  return parts.join(" · ");
}

/** Largest number of sizes before the last one that are shown one by one. */
const MAX_SIZES_SHOWN = 4;

/** Describe the stages of a batch that grows: 1,024 until 25 %, then 4,096; empty for a batch of one size. Of many, the
 * first, how many follow, and the last two. */
export function stagesText(stages) {
  const sizes = stages.map(({ global_size, until_fraction }) =>
    isKnown(until_fraction) ? `${integer(global_size)} until ${Number((100 * until_fraction).toPrecision(4))} %` : integer(global_size));
  if (sizes.length > MAX_SIZES_SHOWN + 1) sizes.splice(1, sizes.length - 3, `${sizes.length - 3} more sizes`);
  return sizes.join(", then ");
}
