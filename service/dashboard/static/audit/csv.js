// The shown rows as a file for spreadsheets.
import { element } from "../common/elements.js";

/** Quote a cell. Spreadsheets would take text that begins with one of these signs as a formula. */
function quote(value) {
  const text = String(value ?? "");
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Have the browser save rows of cells as a CSV file. */
export function saveCsv(name, rows) {
  const text = rows.map((row) => row.map(quote).join(",")).join("\r\n");
  const address = URL.createObjectURL(new Blob([`${text}\r\n`], { type: "text/csv;charset=utf-8" }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
