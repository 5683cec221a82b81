// The values of the fields that a document leaves open, and the numbers derived from it, each with its reason.
import { breakName, element } from "../common/elements.js";

/** Fill `table` with the decided fields, then with the derived numbers that are none of these. */
export function showDerived(table, decisions, derived) {
  const fields = new Set(decisions.map(({ field }) => field));
  const rows = [
    ...decisions.map(({ field, value, reason }) => [field, formatValue(value), reason]),
    ...derived
      .filter(({ name }) => !fields.has(name))
      .map(({ name, value, unit, reason }) => [name, formatAmount(value, unit), reason]),
  ];
  table.tBodies[0].replaceChildren(
    ...rows.map(([name, value, reason]) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, ...formatName(name)),
        element("td", { class: "number" }, value),
        element("td", {}, reason),
      ),
    ),
  );
}

/** Make the parts of a name: a field as in the document, and a number in words. */
const formatName = (name) => (name.includes(".") ? breakName(name) : [name.replaceAll("_", " ")]);

const formatAmount = (value, unit) => `${formatValue(value)} ${value === 1 ? unit.replace(/s$/, "") : unit}`;

function formatValue(value) {
  if (Array.isArray(value)) return value.join(", ");
  const isFraction = typeof value === "number" && !Number.isInteger(value);
  return isFraction ? String(Number(value.toPrecision(4))) : (value ?? "none").toLocaleString("en");
}
