// The text area of the document, with the numbers of its lines, and marks beside lines at fault.
import { element } from "../common/elements.js";

const LINES_ABOVE = 3;

/** Editor of `field`, a text area whose lines do not wrap, in a box with a gutter. */
export class Editor {
  #marks = new Map();

  /** onCaret: called with the number of the line in which the cursor is, once it has moved. */
  constructor(field, gutter, bubble, onCaret) {
    this.field = field;
    this.bubble = bubble;
    this.onCaret = onCaret;
    this.line = 1;
    this.numbers = gutter.appendChild(element("pre", { "aria-hidden": "true" }));
    this.marks = gutter.appendChild(element("div", { class: "marks" }));
    field.addEventListener("scroll", () => this.#place());
    for (const name of ["keyup", "pointerup", "focus", "input"]) {
      field.addEventListener(name, () => {
        this.#noteLine(this.#findLine());
      });
    }
    field.addEventListener("blur", () => this.#place());
    for (const name of ["mouseover", "focusin", "mouseout", "focusout"]) this.marks.addEventListener(name, (event) => this.#hover(event));
    new ResizeObserver(() => this.#place()).observe(field);
  }

  get text() {
    return this.field.value;
  }

  /** Replace the text; the cursor and the scroll position stay where they are. */
  set text(text) {
    const { selectionStart, selectionEnd, scrollTop } = this.field;
    this.field.value = text;
    this.field.setSelectionRange(selectionStart, selectionEnd);
    this.field.scrollTop = scrollTop;
    this.showNumbers();
  }

  showNumbers() {
    const length = this.text.split("\n").length;
    if (this.length === length) return;
    this.length = length;
    this.numbers.textContent = Array.from({ length }, (_, index) => index + 1).join("\n");
  }

  /** Mark lines at fault: a map of messages by the number of the line. */
  mark(faults) {
    this.#marks = faults;
    this.marks.replaceChildren(
      ...[...faults].map(([line, message]) => {
        const mark = element("button", { type: "button", class: "mark", "data-line": line, "aria-label": `Line ${line}: ${message}` }, "!");
        mark.addEventListener("click", () => this.select(line));
        return mark;
      }),
    );
    this.#place();
  }

  /** Select a line, and put the focus on it. */
  select(line) {
    const lines = this.text.split("\n");
    const start = lines.slice(0, line - 1).reduce((length, text) => length + text.length + 1, 0);
    this.field.focus();
    this.field.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    this.reveal(line);
    this.#noteLine(line);
  }

  #noteLine(line) {
    this.line = line;
    this.#place();
    this.onCaret(line);
  }

  /** Scroll to a line, unless it is in sight. */
  reveal(line) {
    const top = (line - 1) * this.#lineHeight;
    const isSeen = top >= this.field.scrollTop && top + this.#lineHeight <= this.field.scrollTop + this.field.clientHeight;
    if (!isSeen) this.field.scrollTop = top - LINES_ABOVE * this.#lineHeight;
  }

  get #lineHeight() {
    return parseFloat(getComputedStyle(this.field).lineHeight);
  }

  #findLine() {
    return this.text.slice(0, this.field.selectionStart).split("\n").length;
  }

  #hover({ type, target }) {
    if (!target.dataset.line) return;
    this.shown = type === "mouseover" || type === "focusin" ? Number(target.dataset.line) : null;
    this.#place();
  }

  /** Move numbers, marks and the message below a line to where the lines are. */
  #place() {
    const { scrollTop, clientHeight } = this.field;
    const toTop = (line) => (line - 1) * this.#lineHeight - scrollTop;
    const isSeen = (line) => toTop(line) > -this.#lineHeight && toTop(line) < clientHeight;
    this.numbers.style.transform = `translateY(${-scrollTop}px)`;
    for (const mark of this.marks.children) {
      const line = Number(mark.dataset.line);
      mark.style.top = `${toTop(line)}px`;
      mark.hidden = !isSeen(line);
    }
    const line = this.shown ?? (document.activeElement === this.field ? this.line : null);
    const message = this.#marks.get(line);
    this.bubble.hidden = message === undefined || !isSeen(line);
    this.bubble.textContent = message ?? "";
    this.bubble.style.top = `${toTop(line + 1)}px`;
  }
}
