// Commands that people take along.
import { makeCopyButton } from "../common/copy.js";
import { element } from "../common/elements.js";

/** Create a line of code with a button that copies it. name: what it is, for the names of line and button. */
export function copyLine(text, name) {
  const code = element("code", { tabindex: "0", role: "group", "aria-label": name }, text);
  const button = element("button", { class: "quiet", type: "button", title: `Copies the ${name}` }, "Copy");
  makeCopyButton(button, () => text);
  return element("div", { class: "copy-line" }, code, button);
}
