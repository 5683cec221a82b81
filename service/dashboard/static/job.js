// Page of one job: header, figures, curves, events and log, updated until the job has ended.
import { BATCH_ADVICE, showAdvice } from "./advice.js";
import { showAttempts, sumSeconds } from "./attempts.js";
import { get, request, showCapacity, startHeader } from "./api.js";
import { Chart } from "./charts.js";
import { Curves } from "./curves.js";
import { showDownloads } from "./downloads.js";
import { showDerived } from "./derived.js";
import { Events } from "./events.js";
import {
  bytes, clock, duration, element, figure, fileSize, hasEnded, integer, isKnown, labelChips, percent, progressText,
  rate, reasonText, samples, showProgress, showState, showTiles, stagesText,
} from "./format.js";
import { Log } from "./log.js";
import { findBatch, NOISE_NAMES, NoiseCharts } from "./noise.js";
import { showPlan } from "./plan.js";
import { ALL, Updates } from "./updates.js";
import { showWarnings, showYardsticks } from "./yardsticks.js";

const CLOCK_MILLISECONDS = 1000;
const byId = (id) => document.getElementById(id);
const page = byId("job");
const path = `/v1/jobs/${encodeURIComponent(page.dataset.jobId)}`;

let lossChart = null;
let aucChart = null;
let log = null;
let drawnVersion = null;
const training = new Curves(path, "training", ["loss", ...NOISE_NAMES]);
const evaluation = new Curves(path, "evaluation", ["auc", "train_auc", "best_possible_auc"]);
const noiseCharts = new NoiseCharts({ scale: byId("noise-scale"), ratios: byId("gsnr"), shares: byId("shares") });
const events = new Events(byId("events"), byId("all-events"), path);

function showHeader(job) {
  document.title = `${job.name} · ${job.state.toLowerCase()} · DLRM`;
  byId("id").textContent = job.id;
  byId("name").textContent = job.name;
  byId("labels").replaceChildren(...labelChips(job));
  showState(byId("state"), job);
  byId("reason").textContent = reasonText(job);
  byId("message").textContent = job.message ?? "";
  byId("message").hidden = !job.message;
  byId("pause").hidden = job.state !== "RUNNING";
  byId("resume").hidden = job.state !== "PAUSED";
  byId("cancel").hidden = hasEnded(job) || job.state === "CANCELLING";
  byId("confirm-name").textContent = job.name;
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

/** Draw the curves whenever something changes; steps that a new attempt has made void disappear. */
async function showCurves(job) {
  const version = `${job.num_attempts} ${job.progress.step} ${job.progress.auc} ${job.state}`;
  if (version === drawnVersion) return;
  await Promise.all([training.update(), evaluation.update()]);
  const { steps } = training.points;
  if (steps.length) lossChart ??= new Chart(byId("loss-chart"), [{ label: "loss", colour: "--accent", hasBand: true }]);
  const marks = training.starts.filter((start) => start.attempt > 1).map((start) => start.step);
  const band = ["max", "min"].map((statistic) => training.get("loss", statistic));
  lossChart?.show([steps, training.get("loss"), ...band], job.progress.num_steps, marks);
  noiseCharts.show(training, job, marks);
  const lines = [
    { name: "auc", label: "AUC", colour: "--good" },
    { name: "train_auc", label: "training rows", colour: "--accent" },
    { name: "best_possible_auc", label: "best possible", colour: "--muted", dash: [6, 4] },
  ].filter(({ name }) => name === "auc" || evaluation.get(name).some(isKnown));
  if (evaluation.points.steps.length) aucChart ??= new Chart(byId("auc-chart"), lines);
  aucChart?.show([evaluation.points.steps, ...lines.map(({ name }) => evaluation.get(name))], job.progress.num_steps);
  drawnVersion = version;
}

function showDocument(job) {
  byId("document").textContent = JSON.stringify(job.spec, null, 2);
}

let job = {};
let checkpoints = [];
let attempts = [];

function take(name, content) {
  // The first message of a job has all its fields, later ones those that have changed.
  if (name === "job") job = { ...job, ...content };
  if (name === "event") events.add(content);
}

async function update(changed) {
  const isAll = changed.has(ALL);
  if (isAll) job = await get(path);
  if (isAll || changed.has("event")) {
    const lists = await Promise.all([`${path}/checkpoints`, `${path}/attempts`].map(get));
    [checkpoints, attempts] = lists.map((list) => list.items);
    await showCapacity(bytes);
  }
  showHeader(job);
  showFigures(job, checkpoints[0], attempts);
  showAttempts(byId("attempts"), attempts);
  showFiles(job, attempts);
  showYardsticks(byId("yardsticks"), job);
  if (page.hidden) showDocument(job);
  page.hidden = false;
  log ??= new Log(byId("log"), byId("rank"), path, job);
  await Promise.all([
    isAll || changed.has("curves") ? showCurves(job) : null,
    isAll ? events.update() : changed.has("event") && events.show(),
    isAll || changed.has("log") ? log.update(job.num_attempts) : null,
  ]);
  await showDownloads(byId("downloads"), path, `${job.state} ${job.num_attempts} ${checkpoints[0]?.step}`);
  showWarnings(byId("warnings"), job, events);
  showAdvice(byId("advice"), events.findLast(BATCH_ADVICE));
  showDerived(byId("derived"), events.findLast("decided")?.details.decisions ?? [], job.derived);
  showPlan(byId("plan"), events.findLast("plan"), events.findLast("step_parts"));
  return !(hasEnded(job) && log.isComplete);
}

startHeader();
const streamPath = () => (events.newest ? `${path}/stream?last_event_id=${events.newest}` : `${path}/stream`);
const updates = new Updates(update, { path: streamPath, names: ["job", "event", "curves", "log"], take });

// What is said of times changes without a message.
setInterval(() => page.hidden || showHeader(job), CLOCK_MILLISECONDS);

async function requestAction(action) {
  try {
    await request("POST", `${path}/${action}`);
  } catch (error) {
    byId("trouble").hidden = false;
    byId("trouble").textContent = error.message;
  }
  updates.updateNow();
}

byId("pause").addEventListener("click", () => requestAction("pause"));
byId("resume").addEventListener("click", () => requestAction("resume"));
byId("cancel").addEventListener("click", () => byId("confirm").showModal());
byId("confirm").addEventListener("close", () => {
  if (byId("confirm").returnValue === "cancel") requestAction("cancel");
});
