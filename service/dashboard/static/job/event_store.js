// The events of a job, read once and then added to.
import { get } from "../common/api.js";

const PAGE_SIZE = 200;

export class EventStore {
  /** path: API path of the job. */
  constructor(path) {
    this.path = path;
    this.cursor = null;
    /** Id of the newest event. */
    this.newest = null;
    this.events = new Map();
  }

  /** Add an event, newer than all others. */
  add(event) {
    this.events.set(event.id, event);
    this.newest = event.id;
  }

  /** Read what is not there yet. */
  async read() {
    for (;;) {
      const query = new URLSearchParams({ limit: PAGE_SIZE });
      if (this.cursor) query.set("cursor", this.cursor);
      const page = await get(`${this.path}/events?${query}`);
      page.items.forEach((event) => this.add(event));
      // The last page has no cursor yet: it is read again until it is full.
      if (!page.next_cursor) break;
      this.cursor = page.next_cursor;
    }
  }

  /** Return the last event with this name that arrived. */
  findLast(name) {
    return [...this.events.values()].findLast((event) => event.name === name);
  }

  /** List the events by their time: reports of ranks arrive later than events of the service itself. */
  list() {
    return [...this.events.values()].sort((one, other) => Date.parse(one.time) - Date.parse(other.time));
  }
}
