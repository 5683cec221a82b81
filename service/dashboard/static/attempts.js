// The attempts of a job: each with its state, why it ended, and from which step to which saved one it came.
import { clock, duration, element, integer, showState } from "./format.js";

/** Fill `details` with a table; it opens by itself when there is a second attempt. */
export function showAttempts(details, attempts) {
  const isMore = attempts.length > details.querySelectorAll("tbody tr").length;
  details.hidden = attempts.length === 0;
  details.querySelector("tbody").replaceChildren(...attempts.map(row));
  if (isMore && attempts.length > 1) details.open = true;
}

function row(attempt) {
  const state = element("span");
  showState(state, attempt.state);
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, integer(attempt.number)),
    element("td", {}, state),
    element("td", {}, attempt.reason?.replaceAll("_", " ") ?? ""),
    element("td", { class: "number" }, integer(attempt.start_step)),
    element("td", { class: "number" }, integer(attempt.saved_step)),
    element("td", {}, element("time", { datetime: attempt.started_at }, clock(attempt.started_at))),
    element("td", { class: "number" }, duration(lasted(attempt))),
    element("td", {}, attempt.message ?? ""),
  );
}

/** What all attempts together have taken: a pause, and the wait for a restart, are in none. */
export const secondsOf = (attempts) => attempts.reduce((seconds, attempt) => seconds + lasted(attempt), 0);

const lasted = (attempt) => (ended(attempt) - Date.parse(attempt.started_at)) / 1000;
const ended = (attempt) => (attempt.finished_at ? Date.parse(attempt.finished_at) : Date.now());
