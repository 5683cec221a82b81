// Events of a job in words.
import { integer } from "../common/format.js";

/** Largest number of values of an event, and of elements of a list, that are shown. */
const MAX_VALUES = 200;
const MAX_ELEMENTS = 50;
const ACTORS = { scheduler: "the scheduler", reconciler: "the service" };

/** Return the kind of an event: state, warning, action or report. warnings: names of warnings. */
export function findKind(event, warnings) {
  if (event.kind === "state") return "state";
  if (warnings.has(event.name) || event.name === "error") return "warning";
  return event.kind === "report" ? "report" : "action";
}

/** Return what happened, in a word or two. */
export function titleOf(event) {
  const words = event.kind === "state" ? event.to_state : (event.name ?? event.reason ?? event.kind);
  return words.replaceAll("_", " ").toLowerCase();
}

/** Return the reason and the message of an event. */
export function messageOf(event) {
  const reason = event.kind === "state" ? event.reason?.replaceAll("_", " ") : null;
  const isSaid = reason && event.message?.startsWith(reason);
  return [isSaid ? null : reason, event.message].filter(Boolean).join(": ");
}

/** Say who did it: a person, a part of the service, or a rank. */
export function actorOf(event) {
  if (event.rank !== null && event.rank !== undefined) return `by rank ${event.rank}`;
  if (event.actor === "trainer") return "by the run";
  return event.actor ? `by ${ACTORS[event.actor] ?? event.actor}` : "";
}

/** List the details of an event as names and values; the name of a value within another one has both. */
export function listDetails(details) {
  const pairs = [];
  collect(details, "", pairs);
  if (pairs.length <= MAX_VALUES) return pairs;
  return [...pairs.slice(0, MAX_VALUES), ["…", `and ${integer(pairs.length - MAX_VALUES)} more`]];
}

function collect(value, name, pairs) {
  const isList = Array.isArray(value);
  const isScalars = isList && value.every((each) => each === null || typeof each !== "object");
  if (isScalars) pairs.push([name, listText(value)]);
  else if (value !== null && typeof value === "object") {
    for (const [key, part] of Object.entries(value)) {
      const word = isList ? String(Number(key) + 1) : key.replaceAll("_", " ");
      collect(part, name ? `${name} / ${word}` : word, pairs);
    }
  } else pairs.push([name, valueText(value)]);
}

function listText(values) {
  const shown = values.slice(0, MAX_ELEMENTS).map(valueText).join(", ");
  if (values.length <= MAX_ELEMENTS) return shown || "none";
  return `${shown} and ${integer(values.length - MAX_ELEMENTS)} more`;
}

function valueText(value) {
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? integer(value) : String(Number(value.toPrecision(6)));
}
