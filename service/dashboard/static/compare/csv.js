// Tables as CSV files, which the browser saves.
import { element } from "../common/elements.js";

/** Beginnings that spreadsheets take for a formula. */
const FORMULA = /^[=+\-@\t\r]/;
const SPECIAL = /[",\r\n]/;

function makeCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return SPECIAL.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Save rows of cells as a file. */
export function saveCsv(name, rows) {
  const text = rows.map((row) => row.map(makeCell).join(",")).join("\r\n");
  const address = URL.createObjectURL(new Blob([text, "\r\n"], { type: "text/csv" }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
