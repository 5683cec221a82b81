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
const decoder = new TextDecoder();
const countBytes = (text) => encoder.encode(text).length;

function findLevel(line) {
  if (ERROR.test(line)) return "error";
  return WARNING.test(line) ? "warning" : null;
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
    /** Bytes of the log before and up to the end of what is shown; null before anything was read. */
    this.start = this.end = null;
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
    this.start = this.end = part.next_offset - countBytes(part.text);
    this.#append(part, true);
  }

  async #readLater(source) {
    const part = await get(`${source}&offset=${this.end}&limit_bytes=${PART_BYTES}`);
    if (source !== this.source) return;
    const begin = part.next_offset - countBytes(part.text);
    // The beginning of the log may have been removed meanwhile.
    if (begin > this.end) this.end = begin;
    this.#append(part, countBytes(part.text) < PART_BYTES - 4);
  }

  /** Add a part after what is shown. A last line without its end is shown, and read again with its end. */
  #append(part, isAtEnd) {
    this.isAtEnd = isAtEnd;
    this.isComplete = isAtEnd && part.complete;
    const whole = part.text.lastIndexOf("\n") + 1;
    const isLong = whole === 0 && !isAtEnd;
    const lines = part.text.slice(0, isLong ? undefined : whole);
    const rest = isLong ? "" : part.text.slice(whole);
    const { partial } = this;
    if (!lines && partial?.isConnected && partial.textContent === rest) return;
    partial?.remove();
    this.partial = null;
    if (lines) this.target.append(this.#makePart(lines, this.end));
    this.end += countBytes(lines);
    if (rest && isAtEnd) {
      this.partial = this.#makePart(rest, this.end);
      this.target.append(this.partial);
    }
    while (this.end - this.#windowStart() > MAX_BYTES) {
      const first = this.target.firstElementChild;
      this.start = Number(first.dataset.end);
      const { offsetHeight } = first;
      first.remove();
      this.#moveBy(-offsetHeight);
    }
  }

  #windowStart() {
    return Number(this.target.firstElementChild?.dataset.start ?? this.end);
  }

  async #readEarlier(source) {
    if (!this.start) return;
    const from = Math.max(0, this.start - PART_BYTES);
    const part = await get(`${source}&offset=${from}&limit_bytes=${Math.max(4, this.start - from)}`);
    if (source !== this.source) return;
    const bytes = encoder.encode(part.text);
    const begin = part.next_offset - bytes.length;
    let text = decoder.decode(bytes.subarray(0, Math.max(0, this.start - begin)));
    // The first line has begun before, unless the part begins with the log or what is left of it.
    const first = text.indexOf("\n") + 1;
    const isWhole = from === 0 || begin > from;
    if (!isWhole && first > 0 && first < text.length) text = text.slice(first);
    if (!text) {
      this.start = 0; // the earlier part is gone
      return;
    }
    const begins = this.start - countBytes(text);
    const node = this.#makePart(text, begins);
    this.start = isWhole && begin > 0 ? 0 : begins;
    this.target.prepend(node);
    this.#moveBy(node.offsetHeight);
    while (this.end - this.#windowStart() > MAX_BYTES) {
      const last = this.target.lastElementChild;
      this.end = Number(last.dataset.start);
      last.remove();
      this.isAtEnd = this.isComplete = false;
    }
  }

  #makePart(text, start) {
    const lines = text.endsWith("\n") ? text.slice(0, -1).split("\n") : text.split("\n");
    let offset = start;
    const nodes = lines.map((line) => {
      const level = findLevel(line);
      const node = element("div", { class: "log-line", "data-offset": offset, ...(level && { "data-level": level }) }, line);
      offset += countBytes(line) + 1;
      return node;
    });
    return element("div", { "data-start": start, "data-end": start + countBytes(text) }, ...nodes);
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
