// A button that copies text.
import { element } from "./elements.js";

const SAID_MILLISECONDS = 2000;

/** Create a button that copies what `getText` returns, and says so. */
export function copyButton(getText) {
  const button = element("button", { type: "button", class: "quiet copy", "aria-live": "polite" }, "Copy");
  let timer = null;
  button.addEventListener("click", async () => {
    button.textContent = (await copy(getText())) ? "Copied" : "Press Ctrl + C";
    clearTimeout(timer);
    timer = setTimeout(() => (button.textContent = "Copy"), SAID_MILLISECONDS);
  });
  return button;
}

/** Copy a text; return whether that worked. Browsers have no clipboard for pages that are neither https nor local. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { readonly: "", "aria-hidden": "true", class: "skip" });
    field.value = text;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    return isCopied;
  }
}
