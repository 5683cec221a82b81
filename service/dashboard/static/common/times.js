// Points in time as texts, in the time zone of the browser.

const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const precise = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const dayAndSecond = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const HOUR_MILLISECONDS = 3_600_000;

/** Format a time with its day: 28 Nov 2026, 10:12. */
export const dateTime = (time) => full.format(new Date(time));
/** Format a time with its day and second. */
export const preciseTime = (time) => precise.format(new Date(time));
/** Format a time of this year with its second: 28 Nov, 10:12:09. */
export const eventTime = (time) => dayAndSecond.format(new Date(time));
/** Format a time: 14:05:09 of today, or 3 Mar, 14:05. */
export function moment(time) {
  const then = new Date(time);
  return (then.toDateString() === new Date().toDateString() ? clock : day).format(then);
}
/** Format a time of the last or the next hours: 10:12, with the day of the week if it is further away. */
export function nearTime(time) {
  const isNear = Math.abs(new Date(time) - Date.now()) < 20 * HOUR_MILLISECONDS;
  return (isNear ? hours : days).format(new Date(time));
}
