// The attempts of a job: state, reason of the end, first step and last saved step of each.
import { element, showState } from "../common/elements.js";
import { clock, duration, integer } from "../common/format.js";

/** Fill the table of `details`, which opens by itself when there is a second attempt. */
export function showAttempts(details, attempts) {
  const isMore = attempts.length > details.querySelectorAll("tbody tr").length;
  details.hidden = attempts.length === 0;
  details.querySelector("tbody").replaceChildren(...attempts.map(makeRow));
  if (isMore && attempts.length > 1) details.open = true;
}

function makeRow(attempt) {
  const state = element("span");
  showState(state, attempt);
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, integer(attempt.number)),
    element("td", {}, state),
    element("td", {}, attempt.reason?.replaceAll("_", " ") ?? ""),
    element("td", { class: "number" }, integer(attempt.start_step)),
    element("td", { class: "number" }, integer(attempt.saved_step)),
    element("td", {}, element("time", { datetime: attempt.started_at }, clock(attempt.started_at))),
    element("td", { class: "number" }, duration(getSeconds(attempt))),
    element("td", {}, attempt.node ?? ""),
    element("td", {}, attempt.message ?? ""),
  );
}

/** Seconds of all attempts together, without pauses and waits for a restart. */
export const sumSeconds = (attempts) => attempts.reduce((seconds, attempt) => seconds + getSeconds(attempt), 0);

const getSeconds = (attempt) => (getEndTime(attempt) - Date.parse(attempt.started_at)) / 1000;
const getEndTime = (attempt) => (attempt.finished_at ? Date.parse(attempt.finished_at) : Date.now());
