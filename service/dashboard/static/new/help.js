// What a field means: one panel, for the field that has the focus in the form or the cursor in the text.
import { breakName, byId, element } from "../common/elements.js";
import { formatValue } from "./schema.js";

/** Show the help on a node. state: its value in the text, its default, the line where it stands, and its fault. */
export function showHelp(node, { value, preset, line, fault }) {
  byId("help-title").replaceChildren(...breakName(node.path.join(".")));
  // What stands between backquotes is code.
  const parts = node.description.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
  byId("help-text").replaceChildren(...parts);
  const own = value === undefined ? null : formatValue(node, value);
  const standard = node.isRequired ? "none: it must be set" : node.kind === "group" && preset !== null ? "on" : formatValue(node, preset);
  const facts = [
    ["Set to", own && `${own}${line ? `, in line ${line}` : ""}`],
    ["Default", standard],
    ["Choices", node.words?.length ? node.words.map((word) => formatValue(node, word)).join(", ") : null],
    ["Valid", [node, ...(node.options ?? [])].map(({ bounds }) => bounds).filter(Boolean).join("; ")],
    ["Unit", node.unit],
    ["Fault", fault],
  ];
  byId("help-facts").replaceChildren(
    ...facts.filter(([, fact]) => fact).map(([name, fact]) => element("div", {}, element("dt", {}, name), element("dd", {}, fact))),
  );
  byId("help-start").hidden = true;
  byId("help-facts").hidden = false;
}
