// What can be done with all selected jobs at once.
import { request } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { count, integer } from "../common/format.js";
import { hasEnded } from "../common/state.js";

const AT_ONCE = 4;
const MAX_NAMED = 8;
const [MIN_COMPARED, MAX_COMPARED] = [2, 8];

const countJobs = (number) => count(number, "job");
const canCancel = (job) => !hasEnded(job) && job.state !== "CANCELLING";

/** The bar below the list while jobs are selected. */
export class Bulk {
  constructor(selection) {
    this.selection = selection;
    this.mayChange = false;
    byId("clear-selection").addEventListener("click", () => selection.clear());
    byId("cancel-jobs").addEventListener("click", () => this.#askToCancel());
    byId("label-jobs").addEventListener("click", () => this.#askForLabel());
    byId("cancel-dialog").addEventListener("close", () => wasConfirmed("cancel-dialog") && this.#cancel());
    byId("label-dialog").addEventListener("close", () => wasConfirmed("label-dialog") && this.#label());
    byId("dismiss").addEventListener("click", () => (byId("result").hidden = true));
  }

  /** Allow what a role may do: viewers change nothing. */
  allow(role) {
    this.mayChange = role !== "viewer";
    this.show();
  }

  /** Show what can be done with the jobs that are selected now. */
  show() {
    const jobs = this.selection.list();
    const here = this.selection.page.filter((job) => this.selection.has(job.id)).length;
    const elsewhere = jobs.length - here;
    byId("bulk").hidden = jobs.length === 0;
    byId("picked").textContent =
      `${countJobs(jobs.length)} selected` + (elsewhere ? `, ${integer(elsewhere)} not on this page` : "");
    const number = jobs.filter(canCancel).length;
    byId("cancel-jobs").hidden = !this.mayChange || number === 0;
    byId("cancel-jobs").textContent = `Cancel ${countJobs(number)}`;
    byId("label-jobs").hidden = !this.mayChange;
    byId("label-jobs").textContent = `Label ${countJobs(jobs.length)}`;
    const isComparable = jobs.length >= MIN_COMPARED && jobs.length <= MAX_COMPARED;
    byId("compare-jobs").hidden = !isComparable;
    byId("compare-hint").hidden = isComparable;
    byId("compare-jobs").textContent = `Compare ${countJobs(jobs.length)}`;
    if (isComparable) byId("compare-jobs").href = `/compare?ids=${jobs.map((job) => job.id).join(",")}`;
  }

  #askToCancel() {
    const jobs = this.selection.list();
    const chosen = jobs.filter(canCancel);
    const others = jobs.length - chosen.length;
    byId("cancel-question").textContent = `Cancel ${countJobs(chosen.length)}?`;
    byId("cancel-hint").textContent =
      "A job that runs saves a checkpoint and stops; one that waits is dropped from the queue. Neither can be resumed." +
      (others ? ` ${countJobs(others)} of the selection ${others === 1 ? "has" : "have"} ended and ${others === 1 ? "stays" : "stay"} as they are.` : "");
    nameJobs(byId("cancel-names"), chosen);
    byId("cancel-confirm").textContent = `Cancel ${countJobs(chosen.length)}`;
    byId("cancel-dialog").showModal();
  }

  #askForLabel() {
    const jobs = this.selection.list();
    byId("label-question").textContent = `Label ${countJobs(jobs.length)}`;
    nameJobs(byId("label-names"), jobs);
    for (const id of ["label-name", "label-value"]) byId(id).value = "";
    byId("label-dialog").showModal();
  }

  #cancel() {
    const jobs = this.selection.list().filter(canCancel);
    return this.#run(jobs, "Cancelled", (job) => request("POST", `/v1/jobs/${encodeURIComponent(job.id)}/cancel`));
  }

  #label() {
    const [name, value] = ["label-name", "label-value"].map((id) => byId(id).value.trim());
    const done = value ? `Set ${name}: ${value} on` : `Removed the label ${name} from`;
    const changes = { labels: { [name]: value || null } };
    return this.#run(this.selection.list(), done, (job) =>
      request("PATCH", `/v1/jobs/${encodeURIComponent(job.id)}`, changes),
    );
  }

  /** Apply an action to jobs, a few at a time, and say what became of it. */
  async #run(jobs, done, act) {
    const faults = [];
    let number = 0;
    const waiting = [...jobs];
    const work = async () => {
      for (let job = waiting.shift(); job; job = waiting.shift()) {
        try {
          await act(job);
        } catch (error) {
          faults.push([job, explain(error)]);
        }
        number += 1;
        say(`${integer(number)} of ${countJobs(jobs.length)} …`);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const numDone = jobs.length - faults.length;
    say(`${done} ${faults.length ? `${integer(numDone)} of ${countJobs(jobs.length)}` : countJobs(numDone)}.`, faults);
    this.selection.clear();
  }
}

const wasConfirmed = (id) => {
  const isConfirmed = byId(id).returnValue === "confirm";
  byId(id).returnValue = "";
  return isConfirmed;
};

/** Say why a job was left as it is; what is wrong with a field says more than that something is. */
const explain = (error) => error.errors.map(({ message }) => message).filter(Boolean).join("; ") || error.message;

function nameJobs(list, jobs) {
  const names = jobs.slice(0, MAX_NAMED).map((job) => element("li", {}, job.name, " ", element("code", {}, job.id)));
  const others = jobs.length - names.length;
  list.replaceChildren(...names, ...(others > 0 ? [element("li", {}, `and ${integer(others)} more`)] : []));
}

/** Say how a change goes on, and which jobs it has left as they are, each with the reason. */
function say(text, faults = []) {
  byId("result").hidden = false;
  byId("result-text").textContent = text;
  byId("result-faults").replaceChildren(
    ...faults.map(([job, why]) =>
      element("li", {}, element("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, job.name), ` is as it was: ${why}`),
    ),
  );
}
