// The loop that keeps a page up to date: through a stream of the service, or by asking again where that fails.
import { isPassing } from "./api.js";
import { byId } from "./elements.js";
import { showTrouble } from "./trouble.js";

const POLL_MILLISECONDS = 2000;
/** Time after which a page that asks again tries the stream once more. */
const STREAM_MILLISECONDS = 60_000;
/** Name of what has changed where that is not known: everything. */
export const ALL = "all";

/** Keep a page up to date while it is visible.
 *
 * update: called with the set of what has changed since its last call, names of messages or ALL; it returns false once
 * nothing will change any more. stream: its path, a function; the names of its messages; and `take`, which gets each
 * message before `update` is called: its name, content and id. Without a stream the page asks again after a pause. */
export class Updates {
  constructor(update, stream = null, pollMilliseconds = POLL_MILLISECONDS) {
    this.update = update;
    this.stream = stream;
    this.pollMilliseconds = pollMilliseconds;
    this.changed = new Set([ALL]);
    this.source = null;
    this.poll = null;
    this.isUpdating = false;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#disconnect();
      else if (!this.isOver) this.restart();
    });
    this.restart();
  }

  /** Look at everything now, and open the stream anew, also if nothing was to change any more. */
  restart() {
    this.isOver = false;
    this.#disconnect();
    this.updateNow();
  }

  /** Look at everything now. */
  updateNow() {
    this.#note(ALL);
  }

  #note(name) {
    this.changed.add(name);
    // After all messages that have come together.
    setTimeout(() => this.#run());
  }

  async #run() {
    if (document.hidden || this.isUpdating || this.isOver || this.changed.size === 0) return;
    const changed = this.changed;
    this.changed = new Set();
    this.isUpdating = true;
    let pause = 0;
    try {
      if ((await this.update(changed)) === false) this.#end(changed);
      byId("trouble").hidden = true;
    } catch (error) {
      showTrouble(error, "trying again");
      if (!isPassing(error)) this.#stop();
      changed.forEach((name) => this.changed.add(name));
      pause = POLL_MILLISECONDS;
    } finally {
      this.isUpdating = false;
      if (this.changed.size) setTimeout(() => this.#run(), pause);
      // Only now, so that the stream begins where this look has ended.
      if (this.source === null && this.poll === null) this.#connect();
    }
  }

  #connect() {
    if (this.isOver || document.hidden) return;
    if (this.stream === null) {
      this.#startPolling();
      return;
    }
    const source = new EventSource(this.stream.path());
    this.source = source;
    source.addEventListener("open", () => this.#stopPolling());
    source.addEventListener("error", () => {
      if (source !== this.source) return;
      // The browser opens it again by itself, unless the service or a proxy has refused it.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.#reopen(source), STREAM_MILLISECONDS);
      this.#startPolling();
      this.updateNow();
    });
    for (const name of this.stream.names) {
      source.addEventListener(name, (message) => {
        if (source !== this.source) return;
        this.stream.take(name, JSON.parse(message.data), message.lastEventId);
        this.#note(name);
      });
    }
    source.addEventListener("end", () => {
      this.#disconnect();
      // Something may come late, such as the last lines of a log.
      this.#startPolling();
      this.updateNow();
    });
  }

  #reopen(source) {
    if (source === this.source) this.restart();
  }

  #startPolling() {
    this.poll ??= setInterval(() => this.updateNow(), this.pollMilliseconds);
  }

  #stopPolling() {
    clearInterval(this.poll);
    this.poll = null;
  }

  #disconnect() {
    this.source?.close();
    this.source = null;
    this.#stopPolling();
  }

  /** Stop after a look at everything: what came last may have had no message of its own. */
  #end(changed) {
    if (changed.has(ALL)) this.#stop();
    else this.changed.add(ALL);
  }

  #stop() {
    this.isOver = true;
    this.#disconnect();
  }
}
