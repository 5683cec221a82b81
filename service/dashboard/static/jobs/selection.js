// Which jobs are selected: one by one, ranges with the shift key, or all of the page.
import { byId } from "../common/elements.js";

/** Jobs that are selected, by their ids; they stay so on other pages of the list. */
export class Selection {
  /** change: called when the user selects or drops jobs. */
  constructor(table, change) {
    this.jobs = new Map();
    this.page = [];
    this.last = null;
    this.change = change;
    table.tBodies[0].addEventListener("click", (event) => event.target.matches("input[data-id]") && this.#pick(event));
    byId("pick-all").addEventListener("change", () => this.#set(this.page, byId("pick-all").checked));
  }

  has(id) {
    return this.jobs.has(id);
  }

  list() {
    return [...this.jobs.values()];
  }

  clear() {
    this.jobs.clear();
    this.last = null;
    this.change();
  }

  /** Take the jobs of the page as they are now. */
  note(jobs) {
    this.page = jobs;
    for (const job of jobs) if (this.jobs.has(job.id)) this.jobs.set(job.id, job);
    const number = jobs.filter((job) => this.jobs.has(job.id)).length;
    byId("pick-all").checked = number > 0 && number === jobs.length;
    byId("pick-all").indeterminate = number > 0 && number < jobs.length;
  }

  #pick(event) {
    const { id } = event.target.dataset;
    const places = [id, event.shiftKey ? this.last : null].map((each) => this.page.findIndex((job) => job.id === each));
    const [start, end] = places.includes(-1) ? [places[0], places[0]] : places.sort((one, other) => one - other);
    this.last = id;
    this.#set(this.page.slice(start, end + 1), event.target.checked);
  }

  #set(jobs, isPicked) {
    for (const job of jobs) {
      if (isPicked) this.jobs.set(job.id, job);
      else this.jobs.delete(job.id);
    }
    this.change();
  }
}
