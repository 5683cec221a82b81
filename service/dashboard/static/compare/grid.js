// Tables that are refilled: rows and cells stay where they are, and change only if their text does.
import { element } from "../common/elements.js";

/** Rows of a table body by key, each with its cells. */
const known = new WeakMap();
/** What each cell shows, as text. */
const shown = new WeakMap();

/** Fill a cell from {text, notes, className, title}; parts that are absent are empty. */
function fillCell(cell, content) {
  const key = JSON.stringify(content);
  if (shown.get(cell) === key) return;
  shown.set(cell, key);
  cell.className = content.className ?? "";
  cell.title = content.title ?? "";
  const notes = (content.notes ?? []).map(({ text, className = "" }) => element("small", { class: className }, text));
  cell.replaceChildren(content.text, ...notes);
}

/** Fill a table body with rows [{key, head, cells}], each of contents of cells. */
export function fillGrid(body, rows) {
  const before = known.get(body) ?? new Map();
  const after = new Map();
  for (const { key, head, cells } of rows) {
    let row = before.get(key);
    if (row === undefined || row.cells.length !== cells.length + 1) {
      const made = [element("th", { scope: "row" }), ...cells.map(() => element("td"))];
      row = { node: element("tr", {}, ...made), cells: made };
    }
    [head, ...cells].forEach((content, index) => fillCell(row.cells[index], content));
    after.set(key, row);
  }
  known.set(body, after);
  const nodes = [...after.values()].map((row) => row.node);
  const isSame = nodes.length === body.rows.length && nodes.every((node, index) => node === body.rows[index]);
  if (!isSame) body.replaceChildren(...nodes);
}
