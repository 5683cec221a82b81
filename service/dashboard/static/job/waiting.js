// Why a job waits: its place, its expected start, who holds the room, and its priority, which can be changed here.
import { describeError, request } from "../common/api.js";
import { element } from "../common/elements.js";
import { binarySize, capitalize, count, estimate, integer, isKnown } from "../common/format.js";
import { nearTime } from "../common/times.js";
import { refill, setText, showFacts } from "./rows.js";

const TITLES = {
  waiting_for_cpu: "Waits for cores",
  waiting_for_memory: "Waits for memory",
  waiting_for_gpu: "Waits for GPUs",
  quota_exceeded: "Waits for the quota of its owner",
  behind_reservation: "Waits behind another job",
  unschedulable: "No machine is large enough",
  held: "Held: it starts once it is released",
};

/** Panel of a job in the queue. */
export class Waiting {
  /** section: the panel. path: of the job in the API. onChange: called once the priority has changed. */
  constructor(section, path, onChange) {
    this.section = section;
    this.path = path;
    this.onChange = onChange;
    this.form = section.querySelector("form");
    this.field = this.form.querySelector("input");
    this.fault = this.form.querySelector(".fault");
    this.advice = {};
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#setPriority();
    });
  }

  /** Show what a job waits for; hide the panel of one that does not wait. advice: sentences by reason. */
  show(job, { advice, mayAct }) {
    this.section.hidden = job.state !== "QUEUED" || (job.reason === "restarting" && !job.queue);
    if (this.section.hidden) return;
    const { queue } = job;
    setText(this.section.querySelector("h2"), TITLES[job.reason] ?? "In the queue");
    const why = [toSentence(queue?.waits_for || job.message), advice[job.reason]];
    setText(this.section.querySelector("p"), why.filter(Boolean).join(" "));
    showFacts(this.section.querySelector("dl"), [
      ["Place", queue && `number ${integer(queue.position)} of those that wait for resources`],
      ["Expected start", queue && describeStart(queue)],
      ["Priority", mayAct ? null : integer(job.priority)],
    ]);
    this.form.hidden = !mayAct;
    if (this.field.dataset.shown !== String(job.priority) && this.field !== document.activeElement) {
      this.field.value = this.field.dataset.shown = job.priority;
    }
    this.#showHolders(queue?.holders ?? []);
  }

  #showHolders(holders) {
    const panel = this.section.querySelector("#holders");
    panel.hidden = holders.length === 0;
    const hasGpus = holders.some((holder) => holder.num_gpus);
    panel.querySelectorAll("th")[4].hidden = !hasGpus;
    refill(panel.querySelector("tbody"), holders, (holder) => holder.id ?? "others", (row, holder) => {
      if (!row.children.length) row.append(nameHolder(holder), ...Array.from({ length: 5 }, () => element("td")));
      const values = [
        holder.owner ?? "",
        integer(holder.num_cores),
        binarySize(holder.memory_bytes),
        integer(holder.num_gpus),
        isKnown(holder.expected_end_at) ? estimate(secondsUntil(holder.expected_end_at)) : holder.id ? "not known" : "",
      ];
      if (holder.id === null) setText(row.firstChild, nameOthers(holder));
      values.forEach((value, index) => {
        const cell = row.children[index + 1];
        setText(cell, value);
        if (index > 0) cell.className = "number";
      });
      row.children[4].hidden = !hasGpus;
    });
  }

  async #setPriority() {
    this.fault.hidden = true;
    try {
      this.onChange(await request("PATCH", this.path, { priority: Number(this.field.value) }));
    } catch (error) {
      this.fault.textContent = describeError(error);
      this.fault.hidden = false;
    }
  }
}

const toSentence = (text) => (text ? `${capitalize(text)}${/[.!?]$/.test(text) ? "" : "."}` : "");

const secondsUntil = (time) => Math.max(0, (Date.parse(time) - Date.now()) / 1000);

function describeStart({ expected_start_at: time, holders }) {
  if (isKnown(time)) {
    const seconds = secondsUntil(time);
    return seconds > 0 ? `about ${nearTime(time)}, in ${estimate(seconds)}` : "any moment";
  }
  return holders.length ? "cannot be told: not all jobs in front have said when they end" : "cannot be told yet";
}

const nameOthers = ({ num_jobs }) => count(num_jobs, "other job");

function nameHolder(holder) {
  if (holder.id === null) return element("th", { scope: "row" }, nameOthers(holder));
  const link = element("a", { href: `/jobs/${encodeURIComponent(holder.id)}` }, holder.name);
  return element("th", { scope: "row" }, link, element("small", {}, ` ${holder.state.toLowerCase()}`));
}
