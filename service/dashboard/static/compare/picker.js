// Box that looks for a job to add: results as a list, which arrow keys and Enter choose from.
import { get } from "../common/api.js";
import { element } from "../common/elements.js";
import { ago, figure, isKnown } from "../common/format.js";

const NUM_RESULTS = 8;
const PAUSE_MILLISECONDS = 200;

/** Search box of jobs. input: its field; list: the list of results; choose: called with the id of the chosen job. */
export class Picker {
  constructor(input, list, { choose, isLeftOut }) {
    this.input = input;
    this.list = list;
    this.choose = choose;
    this.isLeftOut = isLeftOut;
    this.active = -1;
    this.number = 0;
    input.addEventListener("input", () => this.#wait());
    input.addEventListener("focus", () => this.#search());
    input.addEventListener("keydown", (event) => this.#press(event));
    input.addEventListener("blur", () => this.#close());
    // A press on a result would take the focus from the field before the click.
    list.addEventListener("pointerdown", (event) => event.preventDefault());
  }

  #wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#search(), PAUSE_MILLISECONDS);
  }

  async #search() {
    this.number += 1;
    const { number } = this;
    const text = this.input.value.trim();
    const query = new URLSearchParams({ limit: 3 * NUM_RESULTS, ...(text ? { q: text } : {}) });
    let found;
    try {
      found = (await get(`/v1/jobs?${query}`)).items;
    } catch {
      this.#showWords("The service does not answer. Type on to try again.");
      return;
    }
    // An answer to an earlier text may come later.
    if (number !== this.number || document.activeElement !== this.input) return;
    const jobs = found.filter((job) => !this.isLeftOut(job.id)).slice(0, NUM_RESULTS);
    if (jobs.length) this.#show(jobs);
    else this.#showWords("No other job has this in its name, owner, id or labels.");
  }

  #showWords(words) {
    this.ids = [];
    this.list.replaceChildren(element("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, words));
    this.#setOpen(true);
  }

  #show(jobs) {
    this.list.replaceChildren(
      ...jobs.map((job, index) => {
        const auc = isKnown(job.progress.auc) ? `AUC ${figure(job.progress.auc)}` : "";
        const labels = Object.entries(job.labels).map((label) => label.join(": ")).slice(0, 3);
        const about = [job.state.toLowerCase(), auc, job.owner, ago(job.created_at), ...labels].filter(Boolean).join(" · ");
        const option = element("li", { role: "option", id: `found-${index}`, "aria-selected": "false" }, job.name, element("small", {}, about));
        option.addEventListener("click", () => this.#choose(job.id));
        return option;
      }),
    );
    this.ids = jobs.map((job) => job.id);
    this.#activate(-1);
    this.#setOpen(true);
  }

  #activate(index) {
    this.active = index;
    [...this.list.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === index)));
    if (index < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `found-${index}`);
  }

  #press(event) {
    const count = this.ids?.length ?? 0;
    if (event.key === "Escape") this.#close();
    else if (event.key === "Enter") {
      event.preventDefault();
      if (count && !this.list.hidden) this.#choose(this.ids[Math.max(this.active, 0)]);
    } else if (["ArrowDown", "ArrowUp"].includes(event.key)) {
      event.preventDefault();
      if (this.list.hidden) this.#search();
      else if (count) this.#activate((this.active + (event.key === "ArrowDown" ? 1 : this.active < 0 ? 0 : count - 1) + count) % count);
    }
  }

  #choose(id) {
    this.input.value = "";
    this.#close();
    this.choose(id);
  }

  #close() {
    this.number += 1;
    this.#setOpen(false);
  }

  #setOpen(isOpen) {
    this.list.hidden = !isOpen;
    this.input.setAttribute("aria-expanded", String(isOpen));
  }
}
