// What the page shows, as the query of its address: filters, and where in the list it is.

/** States in the order in which a job goes through them. */
export const STATES = [
  ...["QUEUED", "STARTING", "RUNNING", "PAUSING", "PAUSED", "RECOVERING", "CANCELLING"],
  ...["SUCCEEDED", "FAILED", "CANCELLED"],
];
/** Seconds of the spans of time that one can choose. */
export const SPANS = { hour: 3600, day: 86_400, week: 604_800 };
const MAX_TEXT = 100;
const MAX_NAME = 63;
/** Characters from which on a text is looked for anywhere, and not only at the beginning of a name. */
const MIN_ANYWHERE = 3;
/** Label as it stands in chips, documents and commands: `team: ads`, `team:ads`, `team=ads`. Other texts have no such sign. */
const LABEL = /^\s*([\w.-]+)\s*[:=]\s*(\S.*?)\s*$/;
const ID = /^job_[0-9A-Z]{26}$/;

/** Query without any filter, at the newest job. q: text to look for; since: span of the submission; ended: span of the
 * end; before: id that the jobs are older than. */
export const EVERYTHING = { states: [], labels: [], owner: "", q: "", since: "", ended: "", before: "" };

/** Read the query of an address; what is not valid is left out. */
export function parseQuery(search) {
  const params = new URLSearchParams(search);
  const get = (name, isValid) => ((params.get(name) ?? "") && isValid(params.get(name)) ? params.get(name) : "");
  return {
    states: STATES.filter((state) => params.getAll("state").includes(state)),
    labels: [...new Set(params.getAll("label"))].filter((label) => label.includes(":")).sort(),
    owner: get("owner", (owner) => owner.length <= MAX_NAME),
    q: (params.get("q") ?? "").slice(0, MAX_TEXT),
    since: get("since", (span) => span in SPANS),
    ended: get("ended", (span) => span in SPANS),
    before: get("before", (id) => ID.test(id)),
  };
}

/** Write a query as an address has it: `?state=FAILED`; the path alone without any. */
export function formatQuery(query) {
  const params = new URLSearchParams();
  for (const state of query.states) params.append("state", state);
  for (const label of query.labels) params.append("label", label);
  for (const name of ["owner", "q", "since", "ended", "before"]) if (query[name]) params.append(name, query[name]);
  return params.size ? `?${params}` : "/";
}

/** Return the parameters of a query that streams know, too. */
export function streamParams({ states, labels, owner }) {
  const params = new URLSearchParams();
  for (const state of states) params.append("state", state);
  for (const label of labels) params.append("label", label);
  if (owner) params.append("owner", owner);
  return params;
}

/** Return the parameters that select the jobs of a query, wherever in the list. */
export function filterParams(query) {
  const params = streamParams(query);
  if (query.q.trim()) params.append("q", query.q.trim());
  if (query.since) params.append("created_after", startOf(query.since).toISOString());
  if (query.ended) params.append("finished_after", startOf(query.ended).toISOString());
  return params;
}

const startOf = (span) => new Date(Date.now() - 1000 * SPANS[span]);

/** Tell whether a job that a stream has sent, which knows states, labels and owners, meets the other filters too. */
export function matchesRest(query, job) {
  const text = query.q.trim().toLowerCase();
  const has = (part) => (text.length < MIN_ANYWHERE ? part.startsWith(text) : part.includes(text));
  const parts = [job.name, job.owner, job.id, ...Object.values(job.labels)].map((part) => part.toLowerCase());
  const isSince = (time, span) => !span || (time !== null && new Date(time) >= startOf(span));
  return parts.some(has) && isSince(job.created_at, query.since) && isSince(job.finished_at, query.ended);
}

/** Tell whether a query has any filter. */
export const isFiltered = (query) => formatQuery({ ...query, before: "" }) !== "/";

/** Return the query whose text to look for is a label, with that label in its place; null if it is none. */
export function readLabel(query) {
  const [, name, value] = LABEL.exec(query.q) ?? [];
  if (name === undefined) return null;
  const others = query.labels.filter((label) => !label.startsWith(`${name}:`));
  return { ...query, labels: [...others, `${name}:${value}`].sort(), q: "", before: "" };
}

/** Return a list with a value, or without it if it has it. */
export const toggle = (list, value) =>
  list.includes(value) ? list.filter((other) => other !== value) : [...list, value];

/** Return the query of jobs with one more label, or without it. Another value of its name makes way. */
export function toggleLabel(query, name, value) {
  const label = `${name}:${value}`;
  const others = query.labels.filter((other) => other === label || !other.startsWith(`${name}:`));
  return { ...query, labels: toggle(others, label).sort(), before: "" };
}
