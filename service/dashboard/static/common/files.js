// Files that the browser saves, tables as CSV among them.
import { element } from "./elements.js";
import { isKnown } from "./format.js";

const KEPT_MILLISECONDS = 60_000;
/** Beginnings that spreadsheets take for a formula. */
const FORMULA = /^[=+\-@\t\r]/;
const SPECIAL = /[",\r\n]/;

/** Let the browser save a file. */
export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MILLISECONDS);
}

function writeCell(value) {
  if (!isKnown(value)) return "";
  if (typeof value === "number") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return SPECIAL.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Save rows of cells. */
export function saveCsv(name, rows) {
  const text = rows.map((row) => row.map(writeCell).join(",")).join("\r\n");
  save(name, new Blob([text, "\r\n"], { type: "text/csv;charset=utf-8" }));
}

/** Save columns of equally many values, each with its name. */
export const saveColumns = (name, titles, columns) =>
  saveCsv(name, [titles, ...columns[0].map((_, index) => columns.map((column) => column[index]))]);
