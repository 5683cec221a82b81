// Tables that are refilled: rows and cells stay where they are, and change only if their text does.
import { breakName, element } from "../common/elements.js";
import { KeyedRows } from "../common/keyed_rows.js";

/** Rows of a table body. */
const grids = new WeakMap();
/** What each cell shows, as text. */
const shown = new WeakMap();

/** Fill a cell from {text, notes, className, title, letter}; parts that are absent are empty. letter: of its column. */
function fillCell(cell, content) {
  const key = JSON.stringify(content);
  if (shown.get(cell) === key) return;
  shown.set(cell, key);
  cell.className = content.className ?? "";
  cell.title = content.title ?? "";
  const notes = (content.notes ?? []).map(({ text, className = "" }) => element("small", { class: className }, text));
  cell.dataset.letter = content.letter ?? "";
  const text = cell.tagName === "TH" ? breakName(content.text) : [content.text];
  cell.replaceChildren(...text, ...notes);
}

const makeGrid = (body) => new KeyedRows(body, {
  getKey: ({ key, cells }) => `${cells.length} ${key}`,
  make: ({ cells }) => ({ row: element("tr", {}, element("th", { scope: "row" }), ...cells.map(() => element("td"))) }),
  fill: ({ row }, { head, cells }) => [head, ...cells].forEach((content, index) => fillCell(row.cells[index], content)),
});

/** Fill a table body with rows [{key, head, cells}], each of contents of cells. */
export function fillGrid(body, rows) {
  if (!grids.has(body)) grids.set(body, makeGrid(body));
  grids.get(body).show(rows);
}
