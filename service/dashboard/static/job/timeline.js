// What a job did when: one line for each attempt, with its wait before it, over the time since submission.
import { element } from "../common/elements.js";
import { duration } from "../common/format.js";
import { hasEnded } from "../common/state.js";
import { moment } from "../common/times.js";
import { refill, setText } from "./rows.js";

/** Newest attempts that are drawn; the table has all. */
const MAX_LINES = 12;
const WAITS = new Set(["QUEUED", "RECOVERING", "PAUSED"]);
const WORDS = {
  QUEUED: "in the queue", STARTING: "starting", RUNNING: "running", PAUSING: "pausing", PAUSED: "paused",
  RECOVERING: "waiting for a restart", CANCELLING: "stopping",
};
const ENDS = { SUCCEEDED: "ran and succeeded", FAILED: "ran and failed", STOPPED: "ran until it was stopped" };

/** Split the past of a job into spans of one state each, by its changes of state: {state, start, end, attempt}. */
function listSpans(job, changes, now) {
  const over = job.finished_at ? Date.parse(job.finished_at) : now;
  const spans = [];
  // Of a job with many attempts, the first changes may not have been read.
  let attempt = (changes.find((change) => change.attempt)?.attempt ?? 1) - 1;
  changes.forEach(({ to_state: state, time, attempt: number }, index) => {
    attempt = number ?? attempt;
    if (!(state in WORDS)) return;
    const end = index + 1 < changes.length ? Date.parse(changes[index + 1].time) : over;
    // A wait belongs to the attempt that it precedes.
    spans.push({ state, start: Date.parse(time), end, attempt: WAITS.has(state) ? attempt + 1 : Math.max(attempt, 1) });
  });
  return spans;
}

/** Draw the timeline of a job into `target`. changes: events of its changes of state, in their order. attempts: all of
 * its attempts. */
export function showTimeline(target, job, changes, attempts) {
  const spans = listSpans(job, changes, Date.now());
  const lines = [...new Set(spans.map((span) => span.attempt))]
    .slice(-MAX_LINES)
    .map((number) => ({ number, attempt: attempts[number - 1], spans: spans.filter((span) => span.attempt === number) }));
  target.hidden = lines.length === 0;
  if (target.hidden) return;
  const start = lines[0].spans[0].start;
  const end = Math.max(lines.at(-1).spans.at(-1).end, start + 1);
  if (!target.children.length) {
    const times = element("div", { class: "axis" }, ...Array.from({ length: 3 }, () => element("span")));
    target.append(element("div"), times, element("div", { class: "legend" }));
  }
  const [body, axis, legend] = target.children;
  refill(body, lines, (line) => line.number, (row, line) => fillLine(row, line, start, end, attempts), "div");
  const last = hasEnded(job) ? moment(end) : "now";
  [moment(start), duration((end - start) / 1000), last].forEach((text, index) => setText(axis.children[index], text));
  const kinds = new Map(spans.map((span) => [describeKind(span, attempts).words, span]));
  refill(legend, [...kinds], ([words]) => words, (item, [words, span]) => {
    colour(item, span, attempts);
    setText(item, words);
  }, "span");
}

/** Say what a span was: a wait, a start, or how its attempt ended. */
function describeKind({ state, attempt }, attempts) {
  const end = state === "RUNNING" ? (attempts[attempt - 1]?.state ?? "") : "";
  return { end, words: ENDS[end] ?? WORDS[state] };
}

function colour(node, span, attempts) {
  node.dataset.state = span.state;
  node.dataset.end = describeKind(span, attempts).end;
}

function fillLine(row, { number, attempt, spans }, start, end, attempts) {
  if (!row.children.length) {
    row.className = "line";
    row.append(element("span", { class: "who" }), element("span", { class: "track" }), element("span", { class: "how" }));
  }
  const [who, track, how] = row.children;
  setText(who, attempt ? `Attempt ${number}` : "Next attempt");
  setText(how, describeEnd(attempt, spans));
  refill(track, spans, (span) => span.start, (bar, span) => {
    colour(bar, span, attempts);
    bar.style.left = `${(100 * (span.start - start)) / (end - start)}%`;
    bar.style.width = `${(100 * (span.end - span.start)) / (end - start)}%`;
    bar.title = `${WORDS[span.state]} for ${duration((span.end - span.start) / 1000)}, from ${moment(span.start)}`;
  }, "span");
}

/** Say how an attempt ended, or what happens now: worker crashed, exit code 3. */
function describeEnd(attempt, spans) {
  if (!attempt || !attempt.finished_at) return WORDS[spans.at(-1).state];
  const exit = attempt.exit_code ? `, exit code ${attempt.exit_code}` : "";
  return `${(attempt.reason ?? attempt.state.toLowerCase()).replaceAll("_", " ")}${exit}`;
}
