// View of a log of any length: a window of it, extended at the end as the process writes, and at either end by scrolling.
import { get } from "../common/api.js";
import { element } from "../common/elements.js";

const FIRST_LINES = 1000;
const PART_BYTES = 2 ** 16;
/** Bytes of the log that are in the page at most. */
const MAX_BYTES = 2 ** 20;
/** Number of parts that are read one after the other to reach the end; beyond, the view begins anew there. */
const MAX_CATCH_UP = 4;
const NEAR_PIXELS = 24;
/** Levels, names of exceptions and words before a colon: the standard error of a figure is none. */
const ERROR = /\b(ERROR|CRITICAL|FATAL)\b|\b\w+(Error|Exception)\b|\b(error|fatal):|Traceback \(/;
const WARNING = /\bWARN(ING)?\b|\b\w+Warning\b|\bwarning:/;

const encoder = new TextEncoder();
/** Count the bytes of a text in the log; NaN if not all of them were UTF-8, so that the text does not tell. */
const countBytes = (text) => (text.includes("\ufffd") ? NaN : encoder.encode(text).length);

function findLevel(line) {
  if (ERROR.test(line)) return "error";
  return WARNING.test(line) ? "warning" : null;
}

/** Make the element of some lines. offset: byte at which they begin. {end, rest}: of the log before them, to read
 * them again. */
function makePart(text, offset, { end, rest }) {
  const nodes = text.replace(/\n$/, "").split("\n").map((line) => {
    const level = findLevel(line);
    const node = element("div", { class: "log-line", "data-offset": offset, ...(level && { "data-level": level }) }, line);
    offset += countBytes(line) + 1;
    return node;
  });
  return Object.assign(element("div", {}, ...nodes), { resume: { end, rest } });
}

export class Log {
  /** target: element of the lines. onChange: called when the view follows the log, or no longer does. */
  constructor(target, onChange) {
    this.target = target;
    this.onChange = onChange;
    this.source = null;
    this.isFollowing = true;
    this.isReading = false;
    /** Whether somebody has scrolled during a reading, so that more may be needed at either end after it. */
    this.hasScrolled = false;
    target.addEventListener("scroll", () => this.#scrolled());
  }

  /** Show another log from its end. path: API path of its parts with parameters, without a place. */
  async open(path) {
    this.source = path;
    this.#clear();
    this.setFollowing(true);
    await this.update();
  }

  #clear() {
    /** Byte before which and byte from which to read on, as the service has named them; null before anything was read. */
    this.start = this.end = null;
    /** Beginning of the last line, whose end is still to be read. */
    this.rest = "";
    this.isComplete = false;
    /** Whether what is shown ends where the log ended when it was last read. */
    this.isAtEnd = false;
    this.lastTop = 0;
    this.target.replaceChildren();
  }

  /** Whether nothing is shown. */
  get isEmpty() {
    return this.target.childElementCount === 0;
  }

  /** Follow the log, or stop. */
  setFollowing(isFollowing) {
    this.isFollowing = isFollowing;
    this.onChange();
  }

  /** Return to the end of the log and follow it. */
  async follow() {
    this.setFollowing(true);
    if (!this.isAtEnd) this.#clear();
    await this.update();
    this.#scrollToEnd();
  }

  /** Scroll to the end, if the view follows the log. */
  settle() {
    if (this.isFollowing) this.#scrollToEnd();
  }

  /** Read what was written since, if the view follows the log. */
  async update() {
    if (!this.isFollowing || this.isComplete) return;
    await this.#exclusively(async (source) => {
      for (let number = 0; this.end === null || number < MAX_CATCH_UP; number++) {
        if (this.end === null) await this.#readTail(source);
        else await this.#readLater(source);
        if (source !== this.source) return;
        if (this.isAtEnd) break;
      }
      if (!this.isAtEnd) {
        this.#clear();
        await this.#readTail(source);
      }
      // Somebody may have scrolled just now, and its event is still to come.
      if (this.target.scrollTop < this.lastTop - 1) this.#scrolled();
      if (this.isFollowing) this.#scrollToEnd();
    });
  }

  /** Show the line that begins at the byte `offset`. */
  async jump(offset) {
    this.setFollowing(false);
    this.#unmark();
    if (!this.#findLine(offset)) {
      await this.#exclusively(async (source) => {
        this.#clear();
        this.start = this.end = offset;
        await this.#readLater(source);
        if (source === this.source) await this.#readEarlier(source);
      });
    }
    const line = this.#findLine(offset);
    if (!line) return;
    line.dataset.found = "";
    const { top } = line.getBoundingClientRect();
    this.target.scrollTop += top - this.target.getBoundingClientRect().top - this.target.clientHeight / 3;
    this.lastTop = this.target.scrollTop;
  }

  #unmark() {
    this.target.querySelectorAll("[data-found]").forEach((line) => line.removeAttribute("data-found"));
  }

  #findLine(offset) {
    return this.target.querySelector(`[data-offset="${offset}"]`);
  }

  /** Let one reading after the other change the view. */
  async #exclusively(read) {
    while (this.isReading) await this.reading;
    this.isReading = true;
    this.reading = read(this.source).finally(() => {
      this.isReading = false;
      if (this.hasScrolled) this.#scrolled();
    });
    await this.reading;
  }

  async #readTail(source) {
    const part = await get(`${source}&tail_lines=${FIRST_LINES}&limit_bytes=${PART_BYTES}`);
    if (source !== this.source) return;
    this.start = this.end = part.offset;
    this.#append(part, true);
  }

  async #readLater(source) {
    const part = await get(`${source}&offset=${this.end}&limit_bytes=${PART_BYTES}`);
    if (source !== this.source) return;
    // The beginning of the log may have been removed meanwhile.
    if (part.offset > this.end) [this.end, this.rest] = [part.offset, ""];
    this.#append(part, part.next_offset - part.offset < PART_BYTES - 4);
  }

  /** Add a part after what is shown. A last line without its end is shown, and again once more of it is read. */
  #append(part, isAtEnd) {
    this.isAtEnd = isAtEnd;
    this.isComplete = isAtEnd && part.complete;
    const text = this.rest + part.text;
    const whole = text.lastIndexOf("\n") + 1;
    const lines = whole || isAtEnd ? text.slice(0, whole) : text;
    const { partial } = this;
    if (!lines && partial?.isConnected && partial.textContent === text) return;
    partial?.remove();
    if (lines) this.target.append(makePart(lines, this.end - countBytes(this.rest), this));
    this.end = part.next_offset;
    this.rest = text.slice(lines.length);
    this.partial = this.rest && isAtEnd ? makePart(this.rest, this.end - countBytes(this.rest), this) : null;
    if (this.partial) this.target.append(this.partial);
    while (this.end - this.#windowStart() > MAX_BYTES) {
      const first = this.target.firstElementChild;
      const { offsetHeight } = first;
      first.remove();
      this.start = this.#windowStart();
      this.#moveBy(-offsetHeight);
    }
  }

  #windowStart() {
    return this.target.firstElementChild?.resume.end ?? this.end;
  }

  async #readEarlier(source) {
    if (!this.start) return;
    // Of whole lines, no more than bytes.
    const part = await get(`${source}&tail_lines=${PART_BYTES}&before=${this.start}&limit_bytes=${PART_BYTES}`);
    if (source !== this.source) return;
    // Without a text, what was there is gone.
    this.start = part.text ? part.offset : 0;
    if (!part.text) return;
    // A line that goes on after the part is shown already.
    const lines = part.text.slice(0, part.text.lastIndexOf("\n") + 1) || part.text;
    const node = makePart(lines, part.offset, { end: part.offset, rest: "" });
    this.target.prepend(node);
    this.#moveBy(node.offsetHeight);
    while (this.end - this.#windowStart() > MAX_BYTES) {
      const last = this.target.lastElementChild;
      Object.assign(this, last.resume);
      last.remove();
      this.isAtEnd = this.isComplete = false;
    }
  }

  /** Keep the lines in sight where they are though others have come or gone above them. */
  #moveBy(height) {
    this.target.scrollTop += height;
    this.lastTop = this.target.scrollTop;
  }

  #scrollToEnd() {
    this.target.scrollTop = this.target.scrollHeight;
    this.lastTop = this.target.scrollTop;
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.target;
    const isUp = scrollTop < this.lastTop - 1;
    this.lastTop = scrollTop;
    const isNearEnd = scrollHeight - scrollTop - clientHeight < NEAR_PIXELS;
    if (isUp && !isNearEnd && this.isFollowing) this.setFollowing(false);
    this.hasScrolled = this.isReading;
    if (this.isReading) return;
    if (isNearEnd && this.isAtEnd && !this.isFollowing) this.setFollowing(true);
    // A part before its top is reached, so that one scrolls on.
    if (scrollTop < clientHeight && this.start) this.#exclusively((source) => this.#readEarlier(source)).catch(() => {});
    if (isNearEnd && !this.isAtEnd) this.#exclusively((source) => this.#readLater(source)).catch(() => {});
  }
}
