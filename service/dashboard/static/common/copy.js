// Buttons that copy a text.
import { element } from "./elements.js";

const SAID_MILLISECONDS = 2000;

/** Create a button that copies what `getText` returns, and says so for a moment. name: of the text, for a reader. */
export function copyButton(getText, name = "") {
  const button = element("button", { class: "quiet copy", type: "button" }, "Copy");
  if (name) button.setAttribute("aria-label", `Copy: ${name}`);
  makeCopyButton(button, getText);
  return button;
}

/** Create a line of code with a button that copies it. */
export function copyLine(text, name) {
  const code = element("code", { tabindex: "0", role: "group", "aria-label": name }, text);
  return element("div", { class: "copy-line" }, code, copyButton(() => text, name));
}

/** Let `button` copy what `getText` returns, and say so for a moment. */
export function makeCopyButton(button, getText) {
  const { textContent: words } = button;
  let timer = null;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    button.textContent = (await copy(getText())) ? "Copied" : "Not copied";
    clearTimeout(timer);
    timer = setTimeout(() => (button.textContent = words), SAID_MILLISECONDS);
  });
}

/** Copy a text; return whether it was copied. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without https browsers have no clipboard, or refuse it.
    return copySelected(text);
  }
}

function copySelected(text) {
  const { activeElement } = document;
  const field = element("textarea", { class: "skip", "aria-hidden": "true" });
  field.value = text;
  // A dialog makes all else inert.
  (activeElement?.closest("dialog") ?? document.body).append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  activeElement?.focus();
  return isCopied;
}
