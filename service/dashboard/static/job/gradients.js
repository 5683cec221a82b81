// Tab of the gradient's noise, and of what it says of the batch.
import { byId } from "../common/elements.js";
import { isKnown } from "../common/format.js";
import { hasEnded } from "../common/state.js";
import { ALL } from "../common/updates.js";
import { Curves } from "../charts/curves.js";
import { findBatch } from "../plan/batch.js";
import { BATCH_ADVICE, showAdvice, writeAdvice } from "./advice.js";
import { EventStore } from "./event_store.js";
import { path, startJob } from "./frame.js";
import { NOISE_NAMES, NoiseCharts } from "./noise.js";

const training = new Curves(path, "training", NOISE_NAMES);
const events = new EventStore(path, [BATCH_ADVICE]);
let charts = null;

function explainNothing(job) {
  const isOff = job.spec.moments === null;
  byId("empty-title").textContent = isOff ? "This run measures nothing of its gradients." : "Nothing measured yet.";
  const reason = hasEnded(job) ? "It has ended before the first measurement." : "The first measurement comes soon after the first step.";
  byId("empty-reason").textContent = isOff ? "" : reason;
}

function findInterval(advice) {
  const { noise_scale_low: low, noise_scale_high: high } = advice?.details ?? {};
  return isKnown(low) && isKnown(high) ? [low, high] : null;
}

async function update(job, changed) {
  explainNothing(job);
  if (!changed.has(ALL) && !changed.has("curves") && !changed.has("event")) return;
  if (changed.has(ALL) || changed.has("curves")) await training.update();
  charts ??= new NoiseCharts(byId("charts"), job.id);
  const advice = events.findLast(BATCH_ADVICE);
  const isMeasured = charts.show(training, job, findInterval(advice));
  byId("empty").hidden = isMeasured;
  const noiseScale = training.get("noise_scale").findLast(isKnown);
  const sentence = writeAdvice(advice, noiseScale, findBatch(job));
  byId("sentence").textContent = sentence;
  byId("sentence").hidden = !sentence;
  showAdvice(byId("advice"), advice);
}

startJob({ update, names: ["curves", "event"], events });
