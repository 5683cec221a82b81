// The document of a new job that is not submitted yet: kept in the tab, across a sign-in or a reload.

const TEXT = "dlrm.new-job.text";
const KEY = "dlrm.new-job.key";
const FILLED = "dlrm.new-job.filled";
const FROM = "dlrm.new-job.from";
const ASIDE = "dlrm.new-job.aside";
const KEY_BYTES = 16;

/** Text of the tab, the starting point that has filled it, and the idempotency key of its submission. */
export class Draft {
  load() {
    return sessionStorage.getItem(TEXT) ?? "";
  }

  /** Keep a text that has changed: its submission is another one, with a key of its own. */
  save(text) {
    if (text === this.load()) return;
    this.forgetKey();
    keep(TEXT, text);
  }

  /** Keep a text that a starting point has made, and put aside what was typed before.
   *
   * from: query of the address that says of what the text is made, if one does. */
  fill(text, from = "") {
    if (this.isTyped) keep(ASIDE, this.load());
    this.save(text);
    keep(FILLED, text);
    keep(FROM, from);
  }

  /** Query of the address that the text has begun by; empty without one. */
  get from() {
    return sessionStorage.getItem(FROM) ?? "";
  }

  /** Return the typed text that a starting point has replaced, once; empty without one. */
  takeAside() {
    const text = sessionStorage.getItem(ASIDE) ?? "";
    sessionStorage.removeItem(ASIDE);
    return text;
  }

  get hasAside() {
    return sessionStorage.getItem(ASIDE) !== null;
  }

  /** Whether something was typed that a starting point has not made. */
  get isTyped() {
    const text = this.load();
    return text.trim() !== "" && text !== sessionStorage.getItem(FILLED);
  }

  /** Return the idempotency key of the text: the same one until the text changes, or has become a job. */
  getKey() {
    const known = sessionStorage.getItem(KEY);
    if (known) return known;
    // Not crypto.randomUUID, which a page without https does not have.
    const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
    const key = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem(KEY, key);
    return key;
  }

  /** Note that the text has become a job: it is not unsent any more. */
  noteSubmission() {
    this.forgetKey();
    keep(FILLED, this.load());
  }

  forgetKey() {
    sessionStorage.removeItem(KEY);
  }
}

function keep(name, text) {
  try {
    sessionStorage.setItem(name, text);
  } catch {
    // Larger than what a browser keeps, and than any document that the service takes.
    sessionStorage.removeItem(name);
  }
}
