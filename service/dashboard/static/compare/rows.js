// Table of many jobs: sorted by any column, with a box to choose each.
import { element } from "../common/elements.js";
import { isKnown } from "../common/format.js";
import { valueText } from "./words.js";

const NUM_SHOWN = 100;

/** Compare two values: numbers as numbers, absent ones last. */
function compareValues(one, other, sign) {
  if (!isKnown(one) || !isKnown(other)) return Number(!isKnown(one)) - Number(!isKnown(other));
  if (typeof one === "number" && typeof other === "number") return sign * (one - other);
  return sign * String(one).localeCompare(String(other), "en", { numeric: true });
}

/** Table in `table`. actions: `sort(key, isDescending)`, `choose(id)`, and `isFull()`: whether no more can be chosen. */
export class Rows {
  constructor(table, more, actions) {
    this.table = table;
    this.more = more;
    this.actions = actions;
    this.numShown = NUM_SHOWN;
    more.addEventListener("click", () => {
      this.numShown = Infinity;
      this.#draw();
    });
  }

  /** Show jobs by columns. sort: {key, isDescending}; chosen: ids of the chosen ones. */
  show(results, columns, sort, chosen) {
    if (results !== this.results) this.numShown = NUM_SHOWN;
    Object.assign(this, { results, sort, chosen });
    const own = [
      { key: "name", title: "Job", kind: "setting", values: results.names },
      { key: "state", title: "State", kind: "setting", values: results.states.map((state) => state.toLowerCase()) },
    ];
    this.columns = [...own, ...columns];
    this.#draw();
  }

  #draw() {
    const focused = document.activeElement?.closest?.("thead button")?.dataset.key;
    const sorted = this.columns.find(({ key }) => key === this.sort.key) ?? this.columns[0];
    const sign = this.sort.isDescending ? -1 : 1;
    const order = this.results.ids.map((id, index) => index);
    order.sort((one, other) => compareValues(sorted.values[one], sorted.values[other], sign) || one - other);
    this.table.tHead.rows[0].replaceChildren(element("th", { scope: "col" }, "Compare"), ...this.columns.map((column) => this.#makeHead(column, column === sorted)));
    this.table.tBodies[0].replaceChildren(...order.slice(0, this.numShown).map((index) => this.#makeRow(index)));
    this.more.hidden = order.length <= this.numShown;
    this.more.textContent = `Show all ${order.length} jobs`;
    this.updateBoxes(this.chosen);
    if (focused) this.table.tHead.querySelector(`button[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #makeHead(column, isSorted) {
    const isDescending = isSorted && this.sort.isDescending;
    const button = element("button", { type: "button", class: "quiet", "data-key": column.key }, column.title);
    if (isSorted) button.append(element("span", { "aria-hidden": "true" }, isDescending ? " ↓" : " ↑"));
    button.addEventListener("click", () => this.actions.sort(column.key, isSorted ? !isDescending : column.kind === "figure" && column.better !== "lower"));
    const order = isSorted ? (isDescending ? "descending" : "ascending") : "none";
    return element("th", { scope: "col", "aria-sort": order, class: column.isNumeric ? "number" : "" }, button);
  }

  #makeRow(index) {
    const id = this.results.ids[index];
    const name = this.results.names[index];
    const box = element("input", { type: "checkbox", "aria-label": `Compare ${name} ${id}`, "data-id": id });
    box.addEventListener("change", () => this.actions.choose(id));
    const cells = this.columns.slice(1).map((column) =>
      element("td", column.isNumeric ? { class: "number" } : {}, valueText(column, column.values[index])));
    const link = element("a", { href: `/jobs/${encodeURIComponent(id)}`, title: id }, name);
    return element("tr", {}, element("td", {}, box), element("th", { scope: "row" }, link), ...cells);
  }

  /** Check the boxes of the chosen jobs; the others cannot be checked if no more can be chosen. */
  updateBoxes(chosen) {
    this.chosen = chosen;
    for (const box of this.table.tBodies[0].querySelectorAll("input")) {
      box.checked = chosen.includes(box.dataset.id);
      box.disabled = !box.checked && this.actions.isFull();
    }
  }
}
