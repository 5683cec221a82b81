// The actions on a job: those that its state and the role of the sender allow.
import { describeError, get, request } from "../common/api.js";
import { byId } from "../common/elements.js";
import { fileSize } from "../common/format.js";
import { hasEnded } from "../common/state.js";
import { LabelEditor } from "./label_editor.js";

/** Whether an action makes sense for a job. */
const IS_OFFERED = {
  pause: (job) => job.state === "RUNNING",
  resume: (job) => job.state === "PAUSED",
  hold: (job) => job.state === "QUEUED" && !job.is_held,
  release: (job) => job.state === "QUEUED" && job.is_held,
  cancel: (job) => !hasEnded(job) && job.state !== "CANCELLING",
  restart: hasEnded,
  delete: hasEnded,
  clone: () => true,
  "edit-labels": () => true,
};

export class Actions {
  /** path: of the job in the API. sender: promise of who is signed in. onChange: called with the changed job. */
  constructor(path, sender, onChange) {
    this.path = path;
    this.onChange = onChange;
    this.job = null;
    this.mayAct = false;
    this.editor = new LabelEditor(path, onChange);
    sender.then((me) => {
      this.mayAct = me.role !== "viewer";
      this.show(this.job);
    });
    for (const name of ["pause", "resume", "hold", "release"]) {
      byId(name).addEventListener("click", () => this.#post(name));
    }
    byId("cancel").addEventListener("click", () => this.#cancel());
    byId("restart").addEventListener("click", () => this.#restart());
    byId("delete").addEventListener("click", () => this.#delete());
    byId("edit-labels").addEventListener("click", () => this.editor.open(this.job.labels));
  }

  /** Show the buttons that the state of `job` and the role of the sender allow. */
  show(job) {
    this.job = job;
    if (job === null) return;
    for (const [name, isOffered] of Object.entries(IS_OFFERED)) {
      const button = byId(name);
      const isHidden = !this.mayAct || !isOffered(job);
      // Whoever has just used it by keyboard goes on from the heading.
      if (isHidden && button === document.activeElement) byId("main").focus({ preventScroll: true });
      button.hidden = isHidden;
    }
    byId("edit-labels").textContent = Object.keys(job.labels).length ? "Edit labels" : "Add labels";
  }

  /** Do something, with its error under the buttons; return null if it fails. */
  async #try(act) {
    const fault = byId("action-fault");
    fault.hidden = true;
    try {
      return await act();
    } catch (error) {
      fault.textContent = describeError(error);
      fault.hidden = false;
      return null;
    }
  }

  async #post(action) {
    const job = await this.#try(() => request("POST", `${this.path}/${action}`));
    this.onChange(job ?? {});
  }

  async #cancel() {
    const { name, state } = this.job;
    const isIdle = state === "QUEUED" || state === "PAUSED" || state === "RECOVERING";
    const text = `${isIdle ? "It will not run" : "It saves a checkpoint and stops"}, and cannot be resumed.`;
    const keep = isIdle ? "Keep it" : "Keep it running";
    if (await confirm(`Cancel ${name}?`, text, "Cancel job", keep)) await this.#post("cancel");
  }

  async #restart() {
    const job = await this.#try(() => request("POST", `${this.path}/restart`));
    if (job) location.assign(`/jobs/${encodeURIComponent(job.id)}`);
  }

  async #delete() {
    const artifacts = await this.#try(() => get(`${this.path}/artifacts`));
    if (!artifacts) return;
    const text = `${describeLoss(artifacts.items)} This cannot be undone.`;
    if (!(await confirm(`Delete ${this.job.name}?`, text, "Delete for good", "Keep it"))) return;
    if (await this.#try(() => request("DELETE", this.path))) location.assign("/");
  }
}

const NOUNS = { model: ["its model", "models"], checkpoint: ["1 checkpoint", "checkpoints"], log: ["1 log", "logs"] };

/** Name what is lost with a job: its model, 3 checkpoints (1.2 MB), logs, curves. */
function describeLoss(artifacts) {
  // What the service does not see stays.
  const seen = artifacts.filter((item) => !item.place);
  const parts = Object.entries(NOUNS).flatMap(([kind, [one, many]]) => {
    const items = seen.filter((item) => item.kind === kind);
    const size = items.reduce((sum, item) => sum + (item.num_bytes ?? 0), 0);
    return items.length ? [`${items.length === 1 ? one : `${items.length} ${many}`} (${fileSize(size)})`] : [];
  });
  const stays = seen.length < artifacts.length ? " Files that the service does not see stay where they are." : "";
  return `With it go ${[...parts, "its curves", "its events"].join(", ").replace(/, ([^,]*)$/, " and $1")}.${stays}`;
}

/** Ask before an action that cannot be undone; return whether it is confirmed. */
function confirm(title, text, action, otherwise) {
  const dialog = byId("confirm");
  const [keep, act] = dialog.querySelectorAll("button");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  keep.textContent = otherwise;
  act.textContent = action;
  // Escape leaves the value of the last time.
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
  );
}
