// Rows of tables that stay while they are refilled, so that focus and selection stay with them.
import { element } from "../common/elements.js";
import { setChildren } from "../common/keyed_rows.js";

/** Show one row for each of `items` in `body`. getKey: what tells items apart. fill: called with the row and its item. */
export function refill(body, items, getKey, fill, tag = "tr") {
  const before = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const rows = items.map((item) => {
    const key = String(getKey(item));
    const row = before.get(key) ?? element(tag, { "data-key": key });
    fill(row, item);
    return row;
  });
  setChildren(body, rows);
}

/** Write a text into an element, unless it is there already. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Fill a <dl> with names and values, texts or elements; null values are left out. */
export function showFacts(list, facts) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  list.hidden = known.length === 0;
  refill(list, known, ([name]) => name, fillFact, "div");
}

function fillFact(row, [name, value]) {
  if (!row.children.length) row.append(element("dt", {}, name), element("dd"));
  const [, shown] = row.children;
  if (typeof value === "string") setText(shown, value);
  else if (shown.textContent !== value.textContent) shown.replaceChildren(value);
}
