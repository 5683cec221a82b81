// Search in a log: the lines that contain a text, of which one after the other is shown.
import { describeError, get } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { count, fileSize, integer } from "../common/format.js";

const MAX_MATCHES = 1000;

export class LogSearch {
  /** jump: shows the line at an offset. */
  constructor(jump) {
    this.jump = jump;
    this.wanted = byId("wanted");
    this.list = byId("matches");
    this.clear();
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#search(1);
    });
    byId("previous").addEventListener("click", () => this.#search(-1));
    this.wanted.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.clear();
      if (event.key === "Enter" && event.shiftKey) {
        event.preventDefault();
        this.#search(-1);
      }
    });
    this.wanted.addEventListener("input", () => this.wanted.value || this.clear());
  }

  /** Search in another log from now on. source: API path of its matches with parameters. */
  open(source) {
    this.clear();
    this.source = source;
  }

  /** Forget the text and what was found. */
  clear() {
    this.text = null;
    this.matches = [];
    this.current = -1;
    this.wanted.value = "";
    this.#show("");
    this.list.replaceChildren();
  }

  /** Go on to the next line that was found, or the one before; a new text is looked for first. */
  async #search(step) {
    const text = this.wanted.value;
    if (!text) return;
    if (text !== this.text) await this.#find(text);
    if (text !== this.text || !this.matches.length) return;
    this.#go((this.current + step + this.matches.length) % this.matches.length);
  }

  async #find(text) {
    this.text = text;
    this.matches = [];
    this.current = -1;
    this.list.replaceChildren();
    this.isMore = false;
    this.#show("searching …");
    const { source } = this;
    try {
      for (let offset = 0; ; ) {
        const query = new URLSearchParams({ q: text, offset, limit: MAX_MATCHES - this.matches.length });
        const found = await get(`${source}&${query}`);
        if (text !== this.text || source !== this.source) return;
        this.#add(found.items);
        this.isMore = this.matches.length >= MAX_MATCHES;
        if (found.complete || found.next_offset === offset || this.isMore) break;
        offset = found.next_offset;
        this.#show(`${this.#count()} in the first ${fileSize(offset)}, searching …`);
      }
      this.#show(this.#count());
    } catch (error) {
      this.text = null;
      this.#show(describeError(error));
    }
  }

  #count() {
    const { length } = this.matches;
    if (this.isMore) return `the first ${integer(length)} lines`;
    return count(length, "line");
  }

  #add(matches) {
    const first = this.matches.length;
    this.matches.push(...matches);
    this.list.append(
      ...matches.map((match, number) => {
        const place = element("span", { title: "place in the log, from its beginning" }, fileSize(match.offset));
        const button = element("button", { type: "button" }, place, element("code", {}, match.text));
        button.addEventListener("click", () => this.#go(first + number));
        return element("li", {}, button);
      }),
    );
  }

  #go(number) {
    this.list.children[this.current]?.firstChild.removeAttribute("aria-current");
    this.current = number;
    const item = this.list.children[number];
    item.firstChild.setAttribute("aria-current", "true");
    this.list.scrollTop = item.offsetTop - this.list.offsetTop - this.list.clientHeight / 2;
    this.#show(`${integer(number + 1)} of ${this.#count()}`);
    this.jump(this.matches[number].offset);
  }

  #show(words) {
    byId("num-matches").textContent = words;
    byId("previous").hidden = byId("next").hidden = this.matches.length < 2;
    this.list.hidden = this.matches.length === 0;
    this.list.dispatchEvent(new Event("resized", { bubbles: true }));
  }
}
