// Tab of the gradient's noise, and of what it says of the batch.
import { byId } from "../common/elements.js";
import { ALL } from "../common/updates.js";
import { Curves } from "../charts/curves.js";
import { BATCH_ADVICE, showAdvice } from "./advice.js";
import { EventStore } from "./event_store.js";
import { path, startJob } from "./frame.js";
import { NOISE_NAMES, NoiseCharts } from "./noise.js";

const training = new Curves(path, "training", NOISE_NAMES);
const charts = new NoiseCharts({ scale: byId("noise-scale"), ratios: byId("gsnr"), shares: byId("shares") });
const events = new EventStore(path, [BATCH_ADVICE]);

async function update(job, changed) {
  if (changed.has(ALL) || changed.has("curves")) {
    await training.update();
    charts.show(training, job, training.marks);
  }
  showAdvice(byId("advice"), events.findLast(BATCH_ADVICE));
}

startJob({ update, names: ["curves", "event"], events });
