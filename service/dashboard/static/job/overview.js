// Tab of what a job is, where it stands, and what it has left; the order is by what its reader needs first.
import { get } from "../common/api.js";
import { byId, showProgress } from "../common/elements.js";
import { percent } from "../common/format.js";
import { hasEnded, progressText } from "../common/state.js";
import { ALL } from "../common/updates.js";
import { showPlan } from "../plan/plan.js";
import { showAttempts } from "./attempts.js";
import { showDownloads } from "./downloads.js";
import { EventStore } from "./event_store.js";
import { showFigures } from "./figures.js";
import { path, sender, startJob } from "./frame.js";
import { Notice } from "./notice.js";
import { Previews } from "./previews.js";
import { showPlaces, showResources } from "./resources.js";
import { showTimeline } from "./timeline.js";
import { Waiting } from "./waiting.js";
import { WhatToChange } from "./what_to_change.js";
import { showWarnings, showYardsticks } from "./yardsticks.js";

const CLOCK_MILLISECONDS = 1000;
const banners = JSON.parse(byId("warnings").dataset.banners);
const events = new EventStore(path, [...banners, "state", "plan", "step_parts"]);
const notice = new Notice(byId("notice"), `/jobs/${encodeURIComponent(byId("job").dataset.jobId)}`, path);
const waiting = new Waiting(byId("waiting"), path, () => updates.updateNow());
const whatToChange = new WhatToChange(byId("advice-panel"), path);
const previews = new Previews(byId("previews"), path);
let job = null;
let checkpoints = [];
let attempts = [];
let stateChanges = [];
let mayAct = false;

/** Show what changes with time alone, too. */
function showNow() {
  waiting.show(job, { advice: notice.advice, mayAct });
  const text = progressText(job);
  // An end, and a wait before the first step, are said above; a bar would be empty.
  byId("bar").hidden = hasEnded(job) || (job.state === "QUEUED" && !text);
  showProgress(byId("progress"), job);
  byId("progress-text").textContent = [percent(job.progress.done_fraction), text].filter(Boolean).join(" · ");
  showFigures(byId("tiles"), job, checkpoints[0], attempts);
  byId("attempts").hidden = attempts.length === 0;
  showTimeline(byId("attempts").querySelector(".timeline"), job, stateChanges, attempts);
  showAttempts(byId("attempts").querySelector("table"), attempts);
}

async function update(now, changed) {
  job = now;
  if (changed.has(ALL) || changed.has("event")) {
    const lists = await Promise.all([`${path}/checkpoints`, `${path}/attempts`].map(get));
    [checkpoints, attempts] = lists.map((list) => list.items);
    stateChanges = events.list().filter((event) => event.kind === "state");
  }
  notice.show(job, attempts);
  showNow();
  whatToChange.show(job, events.newest);
  showWarnings(byId("warnings"), job, events);
  showYardsticks(byId("yardsticks"), job);
  const plan = events.findLast("plan");
  await showResources(byId("resources"), job, plan);
  showPlaces(byId("places"), job, attempts);
  showPlan(byId("plan"), plan, events.findLast("step_parts"));
  await showDownloads(byId("downloads"), job, path, `${job.state} ${job.num_attempts} ${checkpoints[0]?.step}`);
  if (job.num_attempts && (changed.has(ALL) || changed.has("curves"))) {
    await previews.update(job, { isLast: hasEnded(job) });
  }
}

byId("plan").open = true;
const updates = startJob({ update, names: ["event", "curves"], events });
sender.then(({ role }) => (mayAct = role !== "viewer"));
setInterval(() => job && !hasEnded(job) && showNow(), CLOCK_MILLISECONDS);
