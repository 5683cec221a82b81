// The figures of a job, as far as they are known.
import { showTiles } from "../common/elements.js";
import { ago, count, duration, figure, fileSize, integer, isKnown, listRanked, rate, samples } from "../common/format.js";
import { stagesText } from "../common/state.js";
import { listOfTasks } from "../common/tasks.js";
import { findBatch } from "../plan/batch.js";
import { sumSeconds } from "./attempts.js";

/** Fill `list` with one tile for each known figure, and hide it without any. */
export function showFigures(list, job, lastCheckpoint, attempts) {
  const [quality, speed] = [listQuality(job), listSpeed(job)];
  const others = [...listBatch(job), ...listCheckpoint(lastCheckpoint)];
  // How long it ran says nothing by itself, and the attempts below say it too.
  const hasFigures = quality.length + speed.length + others.length > 0;
  const tiles = hasFigures ? [...quality, ...speed, describeTime(attempts), ...others] : [];
  list.hidden = tiles.length === 0;
  showTiles(list, tiles);
}

function listQuality({ metrics, progress, state, forecast }) {
  const auc = metrics.auc ?? progress.auc;
  const { auc_standard_error: error, best_possible_auc: best, model_step: step } = metrics;
  const isEarlier = isKnown(step) && step < metrics.last_step;
  const notes = [
    error ? `± ${error.toFixed(4)} standard error` : "",
    best ? `best possible ${figure(best)}` : "",
    state === "SUCCEEDED" ? "" : "of the last evaluation",
    state === "SUCCEEDED" && isEarlier ? `the model is of step ${integer(step)}, the best` : "",
  ];
  const constant = metrics.constant_log_loss;
  // The log-loss of a model that is done says more.
  const loss = state === "SUCCEEDED" && isKnown(metrics.log_loss) ? null : progress.loss;
  return [
    ["AUC", auc, figure(auc), notes.filter(Boolean).join(" · ")],
    ["Log-loss", metrics.log_loss, figure(metrics.log_loss), constant ? `constant predictor ${figure(constant)}` : ""],
    ["Normalized entropy", metrics.normalized_entropy, figure(metrics.normalized_entropy), "1 is the constant predictor"],
    ["Calibration", metrics.calibration, figure(metrics.calibration), calibrationNote(metrics)],
    ["AUC within groups", metrics.grouped_auc, figure(metrics.grouped_auc), `${integer(metrics.num_grouped_rows)} rows of groups with both labels`],
    ...listRanked(Object.keys(metrics)).map(({ name, word, rank }) => [`${word}@${rank}`, metrics[name], figure(metrics[name]), "within groups"]),
    ...listTasks(metrics),
    ["Sharpness", metrics.box_sharpness, figure(metrics.box_sharpness), `largest eigenvalue ${figure(metrics.hessian_eigenvalue)}`],
    ["Training loss", loss, figure(loss), "of the last step"],
    ["Log-loss at the end", forecast?.log_loss, figure(forecast?.log_loss), forecast?.message],
  ].flatMap(([name, value, text, note]) => (isKnown(value) ? [[name, text, note]] : []));
}

function calibrationNote({ uncalibrated_calibration: before }) {
  return ["predicted / observed positives; 1 is right", isKnown(before) ? `${figure(before)} before recalibration` : ""].filter(Boolean).join(" · ");
}

const listTasks = (metrics) =>
  listOfTasks(Object.keys(metrics)).map(({ name, task, title }) => [
    `${title} of ${task}`,
    metrics[name],
    figure(metrics[name]),
    `${integer(metrics[`${task}.num_rows`])} rows with its label`,
  ]);

function listSpeed(job) {
  const speed = job.metrics.samples_per_second ?? job.progress.samples_per_second;
  const onNodes = job.num_nodes > 1 ? ` on ${integer(job.num_nodes)} nodes` : "";
  return isKnown(speed) ? [["Samples/s", rate(speed), `${count(job.world_size, "rank")}${onNodes}`]] : [];
}

function describeTime(attempts) {
  const number = count(attempts.length, "attempt");
  return ["Ran for", duration(sumSeconds(attempts)), number];
}

function listBatch(job) {
  const { noise_scale, global_size } = job.progress;
  return [
    ...(isKnown(noise_scale) ? [["Noise scale", samples(noise_scale), `batch ${integer(findBatch(job))}`]] : []),
    ...(job.batch_stages.length && isKnown(global_size)
      ? [["Batch", integer(global_size), `stages: ${stagesText(job.batch_stages)}`]]
      : []),
  ];
}

const listCheckpoint = (last) =>
  last ? [["Last checkpoint", `step ${integer(last.step)}`, `${ago(last.time)} · ${fileSize(last.num_bytes)}`]] : [];
