// What all tabs of a job's page share: its heading, its actions, and the stream that keeps them up to date.
import { get, request } from "../common/api.js";
import { byId, labelChips, showState } from "../common/elements.js";
import { showCapacity, startHeader } from "../common/header.js";
import { hasEnded, reasonText } from "../common/state.js";
import { ALL, Updates } from "../common/updates.js";

const page = byId("job");
/** Path of the job in the API. */
export const path = `/v1/jobs/${encodeURIComponent(page.dataset.jobId)}`;

let job = {};

/** Keep a tab up to date until its job has ended.
 *
 * tab: `update(job, changed)`, called with the job and the set of names of what has changed since its last call, of which
 * ALL stands for everything; it returns false while something is still to come though the job has ended. `names`: of
 * the messages of the stream that it needs beside `job`: `event`, `curves`, `log`. `events`: the EventStore of a tab
 * that needs events. */
export function startJob({ update, names = [], events = null }) {
  startHeader();
  const updates = new Updates(
    async (changed) => {
      if (changed.has(ALL)) job = await get(path);
      showHeading();
      if (changed.has(ALL)) {
        await events?.read();
        await showCapacity();
      }
      const isComplete = await update(job, changed);
      page.hidden = false;
      return !hasEnded(job) || isComplete === false;
    },
    {
      path: () => `${path}/stream${events ? (events.newest ? `?last_event_id=${events.newest}` : "") : "?events=false"}`,
      names: ["job", ...names],
      take(name, content) {
        // The first message of a job has all its fields, later ones those that have changed.
        if (name === "job") job = { ...job, ...content };
        if (name === "event") events?.add(content);
      },
    },
  );
  startActions(updates);
}

function showHeading() {
  document.title = `${job.name} · ${job.state.toLowerCase()} · DLRM`;
  byId("id").textContent = job.id;
  byId("name").textContent = job.name;
  byId("labels").replaceChildren(...labelChips(job));
  showState(byId("state"), job);
  byId("reason").textContent = reasonText(job);
  byId("pause").hidden = job.state !== "RUNNING";
  byId("resume").hidden = job.state !== "PAUSED";
  byId("cancel").hidden = hasEnded(job) || job.state === "CANCELLING";
  byId("confirm-name").textContent = job.name;
}

function startActions(updates) {
  const act = async (action) => {
    try {
      await request("POST", `${path}/${action}`);
    } catch (error) {
      byId("trouble").hidden = false;
      byId("trouble").textContent = error.message;
    }
    updates.updateNow();
  };
  byId("pause").addEventListener("click", () => act("pause"));
  byId("resume").addEventListener("click", () => act("resume"));
  byId("cancel").addEventListener("click", () => byId("confirm").showModal());
  byId("confirm").addEventListener("close", () => byId("confirm").returnValue === "cancel" && act("cancel"));
}
