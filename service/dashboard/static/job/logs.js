// Tab of the logs of a job.
import { byId } from "../common/elements.js";
import { ALL } from "../common/updates.js";
import { path, startJob } from "./frame.js";
import { Log } from "./log.js";

let log = null;

async function update(job, changed) {
  log ??= new Log(byId("log"), byId("rank"), path, job);
  if (changed.has(ALL) || changed.has("log")) await log.update(job.num_attempts);
  return log.isComplete;
}

startJob({ update, names: ["log"] });
