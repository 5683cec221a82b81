// The attempts of a job: state, reason of the end, first step and last saved step of each.
import { element, showState } from "../common/elements.js";
import { duration, integer, isKnown } from "../common/format.js";
import { moment } from "../common/times.js";
import { refill, setText } from "./rows.js";

/** Columns after the number and the state; one that no attempt has a value for is left out. */
const COLUMNS = [
  ["Reason", "", (attempt) => attempt.reason?.replaceAll("_", " ")],
  ["Exit code", "number", (attempt) => (isKnown(attempt.exit_code) ? String(attempt.exit_code) : null)],
  ["From step", "number", (attempt) => (isKnown(attempt.start_step) ? integer(attempt.start_step) : null)],
  ["Saved step", "number", (attempt) => (isKnown(attempt.saved_step) ? integer(attempt.saved_step) : null)],
  ["Started", "", (attempt) => moment(attempt.started_at)],
  ["Duration", "number", (attempt) => duration(getSeconds(attempt))],
  ["Node", "", (attempt) => attempt.node],
  ["Message", "", (attempt) => attempt.message],
];

/** Fill a table with the attempts. */
export function showAttempts(table, attempts) {
  const columns = COLUMNS.filter(([, , find]) => attempts.some(find));
  const titles = [["Attempt", ""], ["State", ""], ...columns];
  const head = table.tHead;
  if (head.dataset.columns !== String(titles)) {
    head.dataset.columns = String(titles);
    const cells = titles.map(([title, kind]) => element("th", { scope: "col", class: kind }, title));
    head.replaceChildren(element("tr", {}, ...cells));
    table.tBodies[0].replaceChildren();
  }
  refill(table.tBodies[0], attempts, (attempt) => attempt.number, (row, attempt) => fillRow(row, attempt, columns));
}

function fillRow(row, attempt, columns) {
  if (!row.children.length) {
    row.append(
      element("th", { scope: "row" }, integer(attempt.number)),
      element("td", {}, element("span")),
      ...columns.map(([, kind]) => element("td", { class: kind })),
    );
  }
  showState(row.children[1].firstChild, attempt);
  columns.forEach(([, , find], index) => setText(row.children[index + 2], find(attempt) ?? ""));
}

/** Seconds of all attempts together, without pauses and waits for a restart. */
export const sumSeconds = (attempts) => attempts.reduce((seconds, attempt) => seconds + getSeconds(attempt), 0);

const getSeconds = (attempt) => (getEndTime(attempt) - Date.parse(attempt.started_at)) / 1000;
const getEndTime = (attempt) => (attempt.finished_at ? Date.parse(attempt.finished_at) : Date.now());
