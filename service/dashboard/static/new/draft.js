// The document of a new job that is not submitted yet: kept in the tab, across a sign-in or a reload.

const TEXT = "dlrm.new-job.text";
const KEY = "dlrm.new-job.key";
const KEY_BYTES = 16;

export const loadText = () => sessionStorage.getItem(TEXT) ?? "";

/** Keep a text that has changed: its submission is another one, with a key of its own. */
export function saveText(text) {
  forgetKey();
  try {
    sessionStorage.setItem(TEXT, text);
  } catch {
    // Larger than what a browser keeps, and than any document that the service takes.
    sessionStorage.removeItem(TEXT);
  }
}

/** Return the idempotency key of the text: the same one until the text changes, or has become a job. */
export function getKey() {
  const known = sessionStorage.getItem(KEY);
  if (known) return known;
  // Not crypto.randomUUID, which a page without https does not have.
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  const key = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  sessionStorage.setItem(KEY, key);
  return key;
}

export const forgetKey = () => sessionStorage.removeItem(KEY);
