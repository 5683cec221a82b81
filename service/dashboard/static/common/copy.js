// Texts that people take along, with a button that copies them.
import { element } from "./elements.js";

const SHOWN_MILLISECONDS = 2000;

/** Create a line of code with a button that copies it. name: what it is, for the name of the button. */
export function copyLine(text, name) {
  const code = element("code", { tabindex: "0", role: "group", "aria-label": name }, text);
  const button = element("button", { class: "quiet", type: "button", "aria-label": `Copy: ${name}` }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copy(code)) ? "Copied" : "Press Ctrl + C";
    setTimeout(() => (button.textContent = "Copy"), SHOWN_MILLISECONDS);
  });
  return element("div", { class: "copy-line" }, code, button);
}

/** Copy the text of an element, or else select it; return whether it is in the clipboard. */
async function copy(node) {
  try {
    // Absent on pages that come without https from another machine.
    await navigator.clipboard.writeText(node.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(node);
    return document.execCommand("copy");
  }
}
