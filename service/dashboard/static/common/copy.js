// Buttons that copy a text.

const SAID_MILLISECONDS = 2000;

/** Let `button` copy what `getText` returns, and say so for a moment. */
export function makeCopyButton(button, getText) {
  const { textContent: words } = button;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    button.textContent = (await copy(getText())) ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = words), SAID_MILLISECONDS);
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
  const field = document.createElement("textarea");
  const { activeElement } = document;
  field.value = text;
  field.setAttribute("aria-hidden", "true");
  field.style.position = "fixed";
  field.style.opacity = "0";
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  activeElement?.focus();
  return isCopied;
}
