// Tab of the logs of a job: of one rank or launch process, and one attempt, which the address names.
import { byId, element } from "../common/elements.js";
import { hasEnded, reasonText } from "../common/state.js";
import { persist } from "../common/trouble.js";
import { ALL } from "../common/updates.js";
import { path, startJob } from "./frame.js";
import { Log } from "./log.js";
import { LogSearch } from "./log_search.js";

const BOTTOM_PIXELS = 40;
const ranks = byId("rank");
const attempts = byId("attempt");
const log = new Log(byId("log"), showFollowing);
const search = new LogSearch((offset) => log.jump(offset));
let job = null;
/** Log that is open: its process, its attempt. */
let opened = null;

/** Show whether the view follows the log; there is nothing to follow once all is shown. */
function showFollowing() {
  byId("follow").hidden = log.isFollowing || log.isEmpty;
  byId("follow").textContent = job && hasEnded(job) ? "To the end" : "Follow";
}

/** Offer the processes of a job and its attempts; what is chosen stays. */
function showChoices() {
  const { world_size: worldSize, num_nodes: numNodes, num_attempts: numAttempts } = job;
  if (!ranks.options.length) {
    const launches = Array.from({ length: numNodes }, (_, node) => node).map((node) => [
      `launch ${node}`,
      numNodes > 1 ? `launch process of node ${node}` : "launch process",
    ]);
    const all = [...Array.from({ length: worldSize }, (_, rank) => [`${rank}`, `rank ${rank}`]), ...launches];
    ranks.replaceChildren(...all.map(([value, name]) => element("option", { value }, name)));
    const asked = new URLSearchParams(location.search);
    const rank = asked.get("rank") ?? "0";
    ranks.value = rank === "launch" ? `launch ${asked.get("node") ?? 0}` : rank;
    if (ranks.selectedIndex < 0) ranks.selectedIndex = 0;
  }
  const wanted = attempts.options.length ? attempts.value : (new URLSearchParams(location.search).get("attempt") ?? "");
  if (attempts.options.length !== Math.max(1, numAttempts)) {
    const earlier = Array.from({ length: Math.max(0, numAttempts - 1) }, (_, number) => numAttempts - 1 - number);
    attempts.replaceChildren(
      element("option", { value: "" }, numAttempts > 1 ? `newest (${numAttempts})` : "newest"),
      ...earlier.map((number) => element("option", { value: number }, `${number}`)),
    );
    attempts.value = earlier.includes(Number(wanted)) ? wanted : "";
  }
  byId("attempt-choice").hidden = numAttempts < 2;
}

/** Keep the chosen log in the address. */
function keepInAddress() {
  const [rank, node] = ranks.value.split(" ");
  const query = new URLSearchParams();
  if (rank !== "0") query.set("rank", rank);
  if (node && node !== "0") query.set("node", node);
  if (attempts.value) query.set("attempt", attempts.value);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

/** Open the chosen log if it is not open. A job that has a new attempt has a new log. */
async function openChosen() {
  const attempt = attempts.value || String(Math.max(1, job.num_attempts));
  const chosen = `${ranks.value} of ${attempt}`;
  if (chosen === opened) return;
  opened = chosen;
  const [rank, node] = ranks.value.split(" ");
  const query = new URLSearchParams({ rank, ...(node && { node }), attempt });
  search.open(`${path}/logs/matches?${query}`);
  const launch = Number(node) ? `launch-node-${node}` : "launch";
  const file = node === undefined ? `rank-${rank}` : launch;
  byId("download").href = `${path}/artifacts/attempt-${attempt}/logs/${file}.log`;
  await log.open(`${path}/logs?${query}`).catch((error) => {
    opened = null;
    throw error;
  });
}

/** Say what an empty log waits for. */
function showEmpty() {
  byId("download").hidden = log.isEmpty;
  byId("log-hint").hidden = !log.isEmpty;
  byId("log").hidden = log.isEmpty;
  if (log.isEmpty) byId("log-hint").textContent = describeEmpty();
}

function describeEmpty() {
  if (job.num_attempts === 0 && hasEnded(job)) return "The job ended before it was started, so nothing was written.";
  if (job.num_attempts === 0) {
    const why = [reasonText(job), job.message].filter(Boolean).join(": ");
    return `The job waits to be started${why ? ` (${why})` : ""}. Its log begins with its first attempt.`;
  }
  const name = ranks.selectedOptions[0]?.textContent ?? "this process";
  return hasEnded(job) || attempts.value ? `The ${name} wrote nothing in this attempt.` : `The ${name} has written nothing yet.`;
}

/** Give the log what is left of the window. */
function fit() {
  const target = byId("log");
  const top = target.getBoundingClientRect().top + window.scrollY;
  target.style.height = `${Math.max(280, window.innerHeight - top - BOTTOM_PIXELS)}px`;
}

async function update(now, changed) {
  job = now;
  showChoices();
  await openChosen();
  if (changed.has(ALL) || changed.has("log")) await log.update();
  showEmpty();
  showFollowing();
  // After the page of the job is shown: before, nothing has a height.
  setTimeout(() => {
    fit();
    log.settle();
  });
  return !log.isFollowing || log.isComplete;
}

async function choose() {
  keepInAddress();
  await persist(openChosen);
  showEmpty();
}

ranks.addEventListener("change", choose);
attempts.addEventListener("change", choose);
byId("follow").addEventListener("click", () => log.follow());
byId("wrap").addEventListener("change", () => byId("log").toggleAttribute("data-wrap", byId("wrap").checked));
byId("log").toggleAttribute("data-wrap", byId("wrap").checked);
byId("matches").addEventListener("resized", fit);
window.addEventListener("resize", fit);
startJob({ update, names: ["log"] });
