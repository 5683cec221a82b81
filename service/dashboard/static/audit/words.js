// What a row of the audit log says, in words.
import { formatLimits } from "./limits.js";

const of = ({ details }) => (details.owner ? ` of ${details.owner}` : "");
const named = ({ details, target }) => details.name ?? details.url ?? target;
const jobOf = (verb) => (row) => `${verb} ${row.details.name ? `job ${row.details.name}` : "a job"}${of(row)}`;
const FAILURES = { unknown: "which nobody knows", expired: "which has expired", revoked: "which was revoked" };

/** Actions by name: a title for the filter, and a function that describes a row. */
export const ACTIONS = {
  key_created: ["key made", (row) => `made key ${row.details.name}${of(row)}, ${row.details.role}`],
  key_revoked: ["key revoked", (row) => `revoked key ${row.details.name}${of(row)}, ${row.details.role}`],
  link_created: ["sign-in link made", (row) => `made a sign-in link for ${row.target}, ${row.details.role}`],
  signed_in: ["signed in", (row) => `signed in with a ${row.details.method}, as ${row.details.role}`],
  sign_in_failed: ["sign-in refused", (row) => `was refused with a ${row.details.method} ${FAILURES[row.details.why] ?? `(${row.details.why})`}`],
  signed_out: ["signed out", () => "signed out"],
  quota_changed: [
    "quota changed",
    ({ details, target }) => (details.removed ? `removed the quota of ${target}` : `set the quota of ${target}: ${formatLimits(details)}`),
  ],
  job_cancelled: ["job cancelled", jobOf("cancelled")],
  job_paused: ["job paused", jobOf("paused")],
  job_resumed: ["job resumed", jobOf("resumed")],
  job_restarted: ["job restarted", jobOf("restarted")],
  job_held: ["job held", jobOf("held back")],
  job_released: ["job released", jobOf("released")],
  job_edited: ["job edited", jobOf("changed labels or priority of")],
  job_deleted: ["job deleted", jobOf("deleted")],
  job_expired: ["job removed by retention", (row) => `removed by retention: ${jobOf("")(row).trim()}`],
  schedule_created: ["schedule made", (row) => `made schedule ${named(row)}${of(row)}`],
  schedule_changed: ["schedule changed", (row) => `changed schedule ${named(row)}${of(row)}`],
  schedule_removed: ["schedule removed", (row) => `removed schedule ${named(row)}${of(row)}`],
  webhook_created: ["webhook made", (row) => `made webhook ${named(row)}${of(row)}`],
  webhook_removed: ["webhook removed", (row) => `removed webhook ${named(row)}${of(row)}`],
};

/** Describe what a row says was done; an action of a newer service by its own name. */
export const describeAction = (row) => (ACTIONS[row.action] ? ACTIONS[row.action][1](row) : row.action.replaceAll("_", " "));

/** Name who acted: the owner of a key, somebody who was not signed in, or the service, which has no address. */
export const describeActor = (row) => row.actor || (row.address ? "not signed in" : "the service");

/** Return the address of the page of the target, if it has one that still exists. */
export function findPage(row) {
  const isGone = row.action === "job_deleted" || row.action === "job_expired";
  return row.target.startsWith("job_") && !isGone ? `/jobs/${encodeURIComponent(row.target)}` : null;
}
