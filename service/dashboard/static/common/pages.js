// A list that the service gives page by page.
import { get } from "./api.js";

/** The items that were read. path: API path of the list. */
export class Pages {
  items = [];
  /** Path of the next page; null if there is none. */
  next = null;
  /** Request that is under way; the answer to an earlier one comes too late. */
  #current = null;

  constructor(path) {
    this.path = path;
  }

  /** Read the first page of a query; return false if another one was opened meanwhile. */
  open(query) {
    return this.#read(`${this.path}?${query}`, []);
  }

  /** Read the next page; return false if something else was being read, or another query was opened meanwhile. */
  async readOn() {
    return this.#current === null && this.#read(this.next, this.items);
  }

  async #read(address, before) {
    const request = get(address);
    this.#current = request;
    try {
      const page = await request;
      if (request !== this.#current) return false;
      this.items = [...before, ...page.items];
      this.next = page.next_cursor && `${address.replace(/&cursor=[^&]*$/, "")}&cursor=${encodeURIComponent(page.next_cursor)}`;
      return true;
    } catch (error) {
      if (request !== this.#current) return false;
      throw error;
    } finally {
      if (request === this.#current) this.#current = null;
    }
  }
}
