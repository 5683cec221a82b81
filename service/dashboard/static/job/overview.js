// Tab of what a job is, where it stands, and what it has left.
import { get } from "../common/api.js";
import { byId, element, showProgress, showTiles } from "../common/elements.js";
import { clock, duration, figure, fileSize, integer, isKnown, percent, rate, samples } from "../common/format.js";
import { progressText, stagesText } from "../common/state.js";
import { ALL } from "../common/updates.js";
import { findBatch } from "../plan/batch.js";
import { showPlan } from "../plan/plan.js";
import { showAttempts, sumSeconds } from "./attempts.js";
import { showDownloads } from "./downloads.js";
import { EventStore } from "./event_store.js";
import { path, startJob } from "./frame.js";
import { WhatToChange } from "./what_to_change.js";
import { showWarnings, showYardsticks } from "./yardsticks.js";

const CLOCK_MILLISECONDS = 1000;
const events = new EventStore(path);
const whatToChange = new WhatToChange(byId("advice-panel"), path);
let job = null;
let checkpoints = [];
let attempts = [];

function showProgressBar() {
  byId("message").textContent = job.message ?? "";
  byId("message").hidden = !job.message;
  showProgress(byId("progress"), job);
  const done = job.state === "SUCCEEDED" ? "" : percent(job.progress.done_fraction);
  byId("progress-text").textContent = [done, progressText(job)].filter(Boolean).join(" · ");
}

const aucNote = ({ auc_standard_error: error, best_possible_auc: best }) =>
  [error ? `± ${error.toFixed(4)} standard error` : "", best ? `best possible ${figure(best)}` : ""].filter(Boolean).join(" · ");

function showFigures(job, lastCheckpoint, attempts) {
  const { metrics, progress } = job;
  const auc = metrics.auc ?? progress.auc;
  const onNodes = job.num_nodes > 1 ? ` on ${integer(job.num_nodes)} nodes` : "";
  const ranks = job.world_size === 1 ? "1 rank" : `${integer(job.world_size)} ranks${onNodes}`;
  const tiles = [
    ["AUC", figure(auc), aucNote(metrics)],
    ["Log-loss", figure(metrics.log_loss), metrics.constant_log_loss ? `constant ${figure(metrics.constant_log_loss)}` : ""],
    ["Loss", figure(progress.loss), "of the last step"],
    ["Samples/s", rate(metrics.samples_per_second ?? progress.samples_per_second), ranks],
    ["Ran for", attempts.length ? duration(sumSeconds(attempts)) : "–", `attempt ${job.num_attempts || "–"}`],
  ];
  if (isKnown(progress.noise_scale)) {
    tiles.push(["Noise scale", samples(progress.noise_scale), `batch ${integer(findBatch(job))}`]);
  }
  if (job.batch_stages.length) tiles.push(["Batch", integer(progress.global_size), `stages: ${stagesText(job.batch_stages)}`]);
  const saved = lastCheckpoint ? `${clock(lastCheckpoint.time)} · ${fileSize(lastCheckpoint.num_bytes)}` : "none yet";
  tiles.push(["Last checkpoint", lastCheckpoint ? `step ${integer(lastCheckpoint.step)}` : "–", saved]);
  showTiles(byId("tiles"), tiles);
}

function showFiles(job, attempts) {
  const isElsewhere = job.launcher !== "local";
  const files = [
    ["Launcher", isElsewhere ? job.launcher : null],
    ["Image", job.image],
    ["Nodes", isElsewhere ? attempts.findLast((attempt) => attempt.node)?.node : null],
    ["Run directory", job.files_at],
    ["Model", job.model_path],
  ].filter(([, file]) => file);
  byId("files").hidden = files.length === 0;
  byId("files").replaceChildren(
    ...files.flatMap(([name, file]) => [element("dt", {}, name), element("dd", {}, element("code", {}, file))]),
  );
}

async function update(now, changed) {
  job = now;
  if (changed.has(ALL) || changed.has("event")) {
    const lists = await Promise.all([`${path}/checkpoints`, `${path}/attempts`].map(get));
    [checkpoints, attempts] = lists.map((list) => list.items);
  }
  showProgressBar();
  showFigures(job, checkpoints[0], attempts);
  whatToChange.show(job, events.newest);
  showAttempts(byId("attempts"), attempts);
  showFiles(job, attempts);
  showYardsticks(byId("yardsticks"), job);
  await showDownloads(byId("downloads"), path, `${job.state} ${job.num_attempts} ${checkpoints[0]?.step}`);
  showWarnings(byId("warnings"), job, events);
  showPlan(byId("plan"), events.findLast("plan"), events.findLast("step_parts"));
}

startJob({ update, names: ["event"], events });
// What is said of times changes without a message.
setInterval(() => job && showProgressBar(), CLOCK_MILLISECONDS);
