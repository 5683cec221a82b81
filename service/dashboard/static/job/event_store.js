// Events of a job: the newest ones first, or those of a few names alone, and then whatever happens.
import { get } from "../common/api.js";

const PAGE_SIZE = 200;

export class EventStore {
  /** path: API path of the job. names: names of the events that are needed, at most some dozens, `state` for changes of
   * state; null: all events, of which `readOlder` reads more. */
  constructor(path, names = null) {
    this.path = path;
    this.names = names;
    this.isRead = false;
    /** Id of the newest event. */
    this.newest = null;
    /** Cursor of the next older page; null if there is none. */
    this.older = null;
    this.events = new Map();
  }

  /** Add an event, unless it has none of the names. */
  add(event) {
    if (this.newest === null || Number(event.id) > Number(this.newest)) this.newest = event.id;
    if (this.names === null || this.names.includes(event.name ?? event.kind)) this.events.set(event.id, event);
  }

  /** Read what is not there yet: at first the newest page, and later what has come since. */
  async read() {
    if (!this.isRead) {
      const newest = await this.#get({ order: "desc", limit: this.names ? 1 : PAGE_SIZE }, null);
      const named = this.names ? await this.#get({ order: "desc" }) : newest;
      [...newest.items, ...named.items].forEach((event) => this.add(event));
      this.older = newest.next_cursor;
      this.isRead = true;
      return;
    }
    for (let cursor = this.newest; cursor; ) {
      const page = await this.#get({ cursor });
      page.items.forEach((event) => this.add(event));
      cursor = page.next_cursor;
    }
  }

  /** Read the next older page of all events. */
  async readOlder() {
    const page = await this.#get({ order: "desc", cursor: this.older });
    page.items.forEach((event) => this.add(event));
    this.older = page.next_cursor;
  }

  #get(parameters, names = this.names) {
    const query = new URLSearchParams({ limit: PAGE_SIZE, ...parameters });
    names?.forEach((name) => query.append("name", name));
    return get(`${this.path}/events?${query}`);
  }

  /** Return the newest event with this name. */
  findLast(name) {
    const found = [...this.events.values()].filter((event) => event.name === name);
    return found.reduce((last, event) => (last && Number(last.id) > Number(event.id) ? last : event), undefined);
  }

  /** List the events by their time: reports of ranks arrive later than events of the service itself. */
  list() {
    return [...this.events.values()].sort(
      (one, other) => Date.parse(one.time) - Date.parse(other.time) || Number(one.id) - Number(other.id),
    );
  }
}
