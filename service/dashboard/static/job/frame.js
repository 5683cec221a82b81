// What all tabs of a job's page share: its heading, its actions, and the stream that keeps them up to date.
import { ApiError, get } from "../common/api.js";
import { byId, element, labelChips, showState } from "../common/elements.js";
import { ago } from "../common/format.js";
import { showCapacity, startHeader } from "../common/header.js";
import { hasEnded, reasonText } from "../common/state.js";
import { ALL, Updates } from "../common/updates.js";
import { Actions } from "./actions.js";

const page = byId("job");
/** Path of the job in the API. */
export const path = `/v1/jobs/${encodeURIComponent(page.dataset.jobId)}`;

/** Sender of the page's requests, once it is known: name, owner, role. */
export const sender = startHeader();

let job = {};
/** What messages have said during a read, whose answer may be older. */
let late = {};

/** Keep a tab up to date until its job has ended.
 *
 * tab: `update(job, changed)`, called with the job and the set of names of what has changed since its last call, of which
 * ALL stands for everything; it returns false while something is still to come though the job has ended. `names`: of
 * the messages of the stream that it needs beside `job`: `event`, `curves`, `log`. `events`: the EventStore of a tab
 * that needs events. Returns the Updates. */
export function startJob({ update, names = [], events = null }) {
  const actions = new Actions(path, sender, (changedJob) => {
    // An answer to a change has no place in the queue.
    job = { ...job, ...changedJob, queue: job.queue };
    showHeading();
    actions.show(job);
    updates.updateNow();
  });
  const updates = new Updates(
    async (changed) => {
      if (changed.has(ALL)) {
        late = {};
        const found = await readJob();
        if (found === null) {
          page.hidden = true;
          byId("absent").hidden = false;
          return false;
        }
        job = { ...found, ...late };
      }
      // Messages that come meanwhile are for the next call: an end among them has not been shown yet.
      const shown = job;
      showHeading();
      actions.show(shown);
      if (changed.has(ALL)) {
        await events?.read();
        await showCapacity();
      }
      const isComplete = await update(shown, changed);
      page.hidden = false;
      return !hasEnded(shown) || isComplete === false;
    },
    {
      path: () => `${path}/stream${events ? (events.newest ? `?last_event_id=${events.newest}` : "") : "?events=false"}`,
      names: ["job", ...names],
      take(name, content) {
        // The first message of a job has all its fields, later ones those that have changed.
        if (name === "job") [job, late] = [job, late].map((known) => ({ ...known, ...content }));
        if (name === "event") events?.add(content);
      },
    },
  );
  return updates;
}

/** Read the job; null if it was deleted, or never was. */
async function readJob() {
  try {
    return await get(path);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

function showHeading() {
  document.title = `${job.name} · ${job.state.toLowerCase()} · DLRM`;
  byId("id").textContent = job.id;
  byId("name").textContent = job.name;
  showState(byId("state"), job);
  byId("reason").textContent = reasonText(job);
  showAbout();
}

let shownLabels = null;

/** Say whose job it is and since when; its labels are made anew only if they have changed. */
function showAbout() {
  const from = job.restarted_from;
  byId("about").replaceChildren(
    `by ${job.owner} · ${ago(job.created_at)}`,
    ...(from ? [" · restart of ", element("a", { href: `/jobs/${encodeURIComponent(from)}` }, from)] : []),
  );
  if (JSON.stringify(job.labels) === shownLabels) return;
  shownLabels = JSON.stringify(job.labels);
  byId("labels").replaceChildren(...labelChips(job));
}
