// What stands first if a job has failed or stopped: why, where, what to do, and the last lines of the log.
import { get, isPassing } from "../common/api.js";
import { element } from "../common/elements.js";
import { integer, isKnown } from "../common/format.js";
import { persist } from "../common/trouble.js";
import { setText } from "./rows.js";

const NUM_LINES = 15;
const LAUNCH = "launch";

/** Panel with the reason of an end, a stop or a failure. */
export class Notice {
  /** section: the panel. page: address of the job's page. path: of the job in the API. */
  constructor(section, page, path) {
    this.section = section;
    this.page = page;
    this.path = path;
    this.advice = JSON.parse(section.dataset.advice);
    [this.message, this.remedy, this.facts] = section.querySelectorAll("p");
    this.log = section.querySelector("figure");
    this.shownLog = null;
  }

  /** Show what is to be said about a job; hide the panel if that is nothing. attempts: all of its attempts. */
  show(job, attempts) {
    const last = attempts.at(-1);
    const { tone, title, hasAdvice, hasLog } = describe(job, last);
    // The panel of waiting jobs has their message.
    this.section.hidden = !title && (!job.message || job.state === "QUEUED");
    if (this.section.hidden) return;
    this.section.dataset.tone = tone;
    fill(this.section.querySelector("h2"), title);
    fill(this.message, job.message);
    fill(this.remedy, hasAdvice ? (this.advice[job.reason] ?? "") : "");
    const rank = hasLog ? findRank(job, last) : null;
    fill(this.facts, hasLog ? describePlace(job, last, rank) : "");
    if (hasLog && last) this.#showLog(last.number, [...new Set([rank ?? LAUNCH, LAUNCH, 0])]);
    else this.log.hidden = true;
  }

  /** Show the last lines of the first log that has any; the page does not wait for them. sources: ranks, or the launch
   * process. */
  async #showLog(attempt, sources) {
    const key = `${attempt} ${sources}`;
    if (key === this.shownLog) return;
    this.shownLog = key;
    for (const source of sources) {
      const text = await persist(() => this.#readLog(attempt, source));
      if (key !== this.shownLog) return;
      this.log.hidden = text === "";
      if (this.log.hidden) continue;
      const name = source === LAUNCH ? "the launch process" : `rank ${source}`;
      const href = `${this.page}/logs?rank=${source}`;
      this.log.querySelector("figcaption").replaceChildren(
        `Last lines of the log of ${name} `,
        element("small", {}, "· ", element("a", { href }, "whole log")),
      );
      const lines = this.log.querySelector("pre");
      lines.setAttribute("aria-label", `last lines of the log of ${name}`);
      lines.textContent = text;
      lines.scrollTop = lines.scrollHeight;
      return;
    }
  }

  /** Read the last lines of a log; empty if it has none, or is refused. */
  async #readLog(attempt, source) {
    const query = new URLSearchParams({ attempt, rank: source, tail_lines: NUM_LINES });
    try {
      return (await get(`${this.path}/logs?${query}`)).text.trimEnd();
    } catch (error) {
      if (isPassing(error)) throw error;
      return "";
    }
  }
}

function fill(node, text) {
  setText(node, text);
  node.hidden = !text;
}

const inWords = (reason) => (reason ?? "").replaceAll("_", " ");

/** Choose tone and title of the panel, and whether advice and the log belong to it. */
function describe(job, last) {
  const isRestarting = job.state === "RECOVERING" || (job.state === "QUEUED" && job.reason === "restarting");
  if (isRestarting && last) {
    const title = `Attempt ${last.number} failed: ${inWords(last.reason)}`;
    return { tone: "warn", title, hasAdvice: true, hasLog: true };
  }
  switch (job.state) {
    case "FAILED":
      return { tone: "bad", title: `Failed: ${inWords(job.reason)}`, hasAdvice: true, hasLog: true };
    case "CANCELLED":
      return { tone: "plain", title: "Cancelled", hasAdvice: true };
    case "PAUSED":
      return job.reason === "user_paused"
        ? { tone: "plain", title: "Paused", hasAdvice: true }
        : { tone: "warn", title: `Paused after a failure: ${inWords(job.reason)}`, hasAdvice: true, hasLog: true };
    case "SUCCEEDED":
      return { tone: "plain", title: "" };
    default:
      // Such as an image that cannot be pulled, or a machine that does not answer.
      return { tone: "warn", title: "", hasAdvice: true };
  }
}

/** Find the rank that failed first; null if none is known, so that the launch process tells most. */
function findRank(job, last) {
  const [end] = last?.rank_ends ?? [];
  const rank = end ? end.rank : Number(/\brank (\d+)\b/.exec(job.message)?.[1] ?? NaN);
  return rank < job.world_size ? rank : null;
}

/** Say where it happened: rank 1 · attempt 2 · step 120 of 500 · exit code 3. */
function describePlace(job, last, rank) {
  const { step, num_steps } = job.progress;
  return [
    isKnown(rank) ? `rank ${rank}` : "",
    last ? `attempt ${last.number}` : "before its first attempt",
    isKnown(step) && num_steps ? `at step ${integer(step)} of ${integer(num_steps)}` : "",
    last && !isKnown(step) ? "before the first step" : "",
    isKnown(last?.exit_code) ? `exit code ${last.exit_code}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}
