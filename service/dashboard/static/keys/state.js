// The state of a key in words.
import { count } from "../common/format.js";
import { dateTime } from "../common/times.js";

const DAY_MILLISECONDS = 86_400_000;
const SOON_DAYS = 7;

/** Return `valid`, `expired` or `revoked`. */
export function keyState(key) {
  if (key.revoked_at) return "revoked";
  return key.expires_at && Date.parse(key.expires_at) <= Date.now() ? "expired" : "valid";
}

/** Say until when a key is valid, or since when it is not. */
export function expiryText(key) {
  if (key.revoked_at) return `revoked ${dateTime(key.revoked_at)}`;
  if (!key.expires_at) return "never expires";
  const days = Math.floor((Date.parse(key.expires_at) - Date.now()) / DAY_MILLISECONDS);
  if (days < 0) return `expired ${dateTime(key.expires_at)}`;
  const soon = days < 1 ? ", within a day" : days <= SOON_DAYS ? `, in ${count(days, "day")}` : "";
  return `expires ${dateTime(key.expires_at)}${soon}`;
}
