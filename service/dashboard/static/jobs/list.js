// The jobs of one page of the list, kept up to date by what the stream says.
import { get } from "../common/api.js";
import { EVERYTHING, filterParams, matchesRest } from "./query.js";

const PAGE_SIZE = 50;
const MAX_STATES = 5000;

/** One page of the list, newest job first. */
export class JobPage {
  constructor() {
    this.open(EVERYTHING);
  }

  /** Begin with another page, of which nothing is known yet. */
  open(query) {
    this.query = query;
    this.jobs = new Map();
    /** Last known states, those of jobs beside the page too. */
    this.states = new Map();
    this.hasOlder = false;
    /** Messages that came while the list was being read, which may be older than they are. */
    this.late = null;
  }

  /** Whether jobs have left the page that older ones should take the place of. */
  get hasRoom() {
    return this.hasOlder && this.jobs.size < PAGE_SIZE;
  }

  /** Read the page; return false if another one was opened meanwhile. */
  async read() {
    const query = this.query;
    const params = filterParams(query);
    params.append("limit", PAGE_SIZE);
    if (query.before) params.append("cursor", query.before);
    this.late = [];
    const page = await get(`/v1/jobs?${params}`);
    if (query !== this.query) return false;
    this.jobs = new Map(page.items.map((job) => [job.id, job]));
    for (const { id, state } of page.items) this.states.set(id, state);
    this.hasOlder = page.next_cursor !== null;
    const missed = this.late;
    this.late = null;
    for (const [name, content] of missed) this.take(name, content);
    return true;
  }

  /** Take a message of the stream; return whether it changes how many jobs are in some state. */
  take(name, content) {
    if (name === "reset") return true;
    this.late?.push([name, content]);
    if (name === "gone") {
      this.jobs.delete(content.id);
      this.states.delete(content.id);
      return true;
    }
    if (this.jobs.has(content.id) || this.#hasPlaceFor(content)) this.jobs.set(content.id, content);
    const isChanged = this.states.get(content.id) !== content.state;
    if (this.states.size >= MAX_STATES) this.states.clear();
    this.states.set(content.id, content.state);
    return isChanged;
  }

  #hasPlaceFor(job) {
    if (this.query.before && job.id >= this.query.before) return false;
    if (!matchesRest(this.query, job)) return false;
    // Jobs older than the page stay out.
    return !this.hasOlder || [...this.jobs.keys()].some((id) => id < job.id);
  }

  /** List the jobs, and drop the oldest ones that make way for new ones. */
  list() {
    const newest = [...this.jobs.values()].sort((one, other) => (one.id < other.id ? 1 : -1));
    if (newest.length > PAGE_SIZE) this.hasOlder = true;
    for (const { id } of newest.splice(PAGE_SIZE)) this.jobs.delete(id);
    return newest;
  }
}
