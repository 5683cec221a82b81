// Page of what jobs may occupy and do occupy, of the queue, and of the use over the last days.
import { get } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { startHeader } from "../common/header.js";
import { hasEnded } from "../common/state.js";
import { ALL, Updates } from "../common/updates.js";
import { showHistory, watchHours } from "./history.js";
import { showHolders } from "./holders.js";
import { launcherTitle, showMachines } from "./machines.js";
import { showOwners } from "./owners.js";
import { showQueue } from "./queue.js";
import { watchQuotas } from "./quota_form.js";

/** Least time between two reads, however much happens; a read that takes long is repeated later, up to the second one. */
const READ_MILLISECONDS = 5000;
const MAX_READ_MILLISECONDS = 15_000;
const READ_SHARE = 0.02;
/** Time after which everything is read again: jobs of other owners start and end without a message. */
const STALE_MILLISECONDS = 30_000;

const choice = byId("launcher");
/** What the stream has said of each job that goes on, as far as it decides who holds what: state, place and reason. */
const known = new Map();
let use = { jobs: [], others: { num_jobs: 0 }, owners: [], nodes: [] };
const me = startHeader();
let isStale = true;
let readAt = -Infinity;
let pause = READ_MILLISECONDS;
let timer = null;

function take(name, content) {
  const isJob = name === "job";
  const now = [content.state, content.is_held, content.priority, content.reason].join(" ");
  isStale ||= !isJob || known.get(content.id) !== now;
  if (!isJob || hasEnded(content)) known.delete(content.id);
  else known.set(content.id, now);
  if (!isJob) return;
  const held = use.jobs.find((job) => job.id === content.id);
  if (held) held.progress = content.progress;
}

function showLaunchers(capacity) {
  const names = Object.keys(capacity.launchers);
  if (choice.options.length !== names.length) {
    choice.replaceChildren(...names.map((name) => element("option", { value: name }, launcherTitle(name))));
    const asked = new URLSearchParams(location.search).get("launcher");
    choice.value = names.includes(asked) ? asked : capacity.launcher;
  }
  byId("choose-launcher").hidden = names.length < 2;
}

async function readAll() {
  readAt = performance.now();
  isStale = false;
  const [capacity, holders, quotas] = await Promise.all(["/v1/capacity", "/v1/capacity/use", "/v1/quotas"].map(get));
  use = holders;
  showLaunchers(capacity);
  const hasGpus = Object.values(capacity.launchers).some((one) => one.num_gpus !== 0) || use.jobs.some((job) => job.num_gpus);
  byId("content").classList.toggle("no-gpus", !hasGpus);
  showMachines(capacity, use.nodes);
  showOwners(use, quotas.items, await me);
  showQueue(await get(`/v1/queue?launcher=${choice.value}`));
  pause = Math.min(Math.max(READ_MILLISECONDS, (performance.now() - readAt) / READ_SHARE), MAX_READ_MILLISECONDS);
  await showHistory(choice.value, capacity.launchers[choice.value]);
}

async function update(changed) {
  isStale ||= changed.has(ALL);
  const age = performance.now() - readAt;
  if (isStale && age >= pause) {
    await readAll().catch((error) => {
      // To be read again as soon as the service answers.
      readAt = -Infinity;
      throw error;
    });
  }
  showHolders(use, choice.value);
  byId("content").hidden = false;
  clearTimeout(timer);
  // Counted from the read: messages come more often than that.
  timer = setTimeout(refresh, readAt + (isStale ? pause : STALE_MILLISECONDS) - performance.now());
}

/** Look again; the stream is left as it is. */
const refresh = () => updates.updateNow();

function readNow() {
  readAt = -Infinity;
  refresh();
}

choice.addEventListener("change", () => {
  history.replaceState(null, "", `?launcher=${choice.value}`);
  readNow();
});
watchHours(readNow);
watchQuotas(readNow);
const updates = new Updates(update, { path: () => "/v1/stream", names: ["job", "gone", "reset"], take });
