// The end of one rank's log, extended as the rank writes.
import { get } from "../common/api.js";
import { element } from "../common/elements.js";

const FIRST_LINES = 200;
const MAX_CHARACTERS = 200_000;
const NEAR_END_PIXELS = 24;

export class Log {
  constructor(target, select, path, { world_size: worldSize, num_nodes: numNodes }) {
    this.target = target;
    this.path = path;
    this.select = select;
    const ranks = Array.from({ length: worldSize }, (_, rank) => element("option", { value: rank }, `rank ${rank}`));
    const nodes = Array.from({ length: numNodes }, (_, node) => node);
    const launches = nodes.map((node) =>
      element("option", { value: `launch ${node}` }, numNodes > 1 ? `launch of node ${node}` : "launch"),
    );
    select.replaceChildren(...ranks, ...launches);
    select.addEventListener("change", () => {
      this.#restart();
      this.update(0);
    });
    this.#restart();
  }

  #restart() {
    this.offset = null;
    this.attempt = null;
    this.isComplete = false;
    this.target.textContent = "";
  }

  /** Fetch the new part of the log; a view at its end stays there. numAttempts: number of attempts so far. */
  async update(numAttempts) {
    if (this.attempt !== null && this.attempt < numAttempts) this.#restart(); // each attempt has a log of its own
    if (this.isComplete) return;
    const chosen = this.select.value;
    const [rank, node] = chosen.split(" ");
    const query = new URLSearchParams({ rank, ...(node && { node }) });
    if (this.offset === null) query.set("tail_lines", FIRST_LINES);
    else query.set("offset", this.offset);
    const part = await get(`${this.path}/logs?${query}`);
    if (chosen !== this.select.value) return; // another log was chosen meanwhile
    if (this.attempt !== null && part.attempt !== this.attempt) return; // the next update shows the newer attempt
    const { target } = this;
    const isAtEnd = target.scrollHeight - target.scrollTop - target.clientHeight < NEAR_END_PIXELS;
    if (part.text) target.textContent = (target.textContent + part.text).slice(-MAX_CHARACTERS);
    if (isAtEnd) target.scrollTop = target.scrollHeight;
    this.offset = part.next_offset;
    this.attempt = part.attempt;
    this.isComplete = part.complete;
  }
}
