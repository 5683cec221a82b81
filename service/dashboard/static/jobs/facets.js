// The panel of what the list can be narrowed to, with the number of jobs of each choice.
import { get } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { integer } from "../common/format.js";
import { setChildren } from "../common/keyed_rows.js";
import { Nodes } from "./nodes.js";
import { filterParams, formatQuery, SPANS, STATES, toggle, toggleLabel } from "./query.js";

/** Shortest time from one count to the next while jobs change. */
const MIN_PAUSE_MILLISECONDS = 5000;
/** Multiple of the time that counting took for which nothing is counted again: an open tab costs little. */
const PAUSE_FACTOR = 200;
export const SPAN_WORDS = { hour: "last hour", day: "last day", week: "last week" };

/** The panel. show: called with each new count. */
export class Facets {
  constructor(show) {
    this.show = show;
    this.choices = new Nodes(makeChoice);
    this.groups = new Nodes(makeGroup);
    this.timer = null;
    this.pause = MIN_PAUSE_MILLISECONDS;
    this.facets = null;
  }

  /** Count now, for another query. */
  open(query) {
    this.query = query;
    return this.#count();
  }

  /** Count again soon, since jobs have changed. */
  note() {
    this.timer ??= setTimeout(() => this.#count().catch(() => {}), this.pause);
  }

  async #count() {
    clearTimeout(this.timer);
    this.timer = null;
    const query = this.query;
    const begun = performance.now();
    const facets = await get(`/v1/facets?${filterParams(query)}`);
    if (query !== this.query) return;
    this.pause = Math.max(MIN_PAUSE_MILLISECONDS, PAUSE_FACTOR * (performance.now() - begun));
    this.#fill(facets);
    this.show(facets);
  }

  #fill(facets) {
    const { query } = this;
    const first = { ...query, before: "" };
    const states = orderStates(facets.states, query);
    byId("facet-states").parentElement.hidden = states.length === 0;
    setChildren(byId("facet-states"), this.#choose("state", states, (value) => ({
      text: value.toLowerCase(),
      isChosen: query.states.includes(value),
      query: { ...first, states: toggle(query.states, value) },
    })));
    byId("facet-owners").parentElement.hidden = facets.owners.length < 2 && !query.owner;
    setChildren(byId("facet-owners"), this.#choose("owner", facets.owners, (value) => ({
      text: value,
      isChosen: query.owner === value,
      query: { ...first, owner: query.owner === value ? "" : value },
    })));
    const spans = ["", ...Object.keys(SPANS)].map((value) => ({ value, num_jobs: null }));
    setChildren(byId("facet-spans"), this.#choose("since", spans, (value) => ({
      text: SPAN_WORDS[value] ?? "any time",
      isChosen: query.since === value,
      query: { ...first, since: value },
    })));
    this.#fillLabels(facets.labels);
  }

  #fillLabels(labels) {
    const { query } = this;
    byId("facet-labels").parentElement.hidden = labels.length === 0;
    const groups = labels.map(({ name, num_values, values }) => {
      const group = this.groups.get(name, { num_values, isChosen: query.labels.some((label) => label.startsWith(`${name}:`)) });
      group.size.textContent = num_values === 1 ? "" : integer(num_values);
      group.more.textContent =
        num_values > values.length ? `${integer(num_values - values.length)} more: find them by the search` : "";
      setChildren(group.list, this.#choose(`label ${name}`, values, (value) => ({
        text: value || "(empty)",
        isChosen: query.labels.includes(`${name}:${value}`),
        query: toggleLabel(query, name, value),
      })));
      return group.node;
    });
    setChildren(byId("facet-labels"), groups);
  }

  #choose(group, values, describe) {
    return values.map(({ value, num_jobs }) => {
      const choice = this.choices.get(`${group} ${value}`);
      const { text, isChosen, query } = describe(value);
      choice.text.textContent = text;
      choice.number.textContent = num_jobs === null ? "" : integer(num_jobs);
      choice.link.href = formatQuery(query);
      if (isChosen) choice.link.setAttribute("aria-current", "true");
      else choice.link.removeAttribute("aria-current");
      return choice.node;
    });
  }
}

/** Order states as jobs go through them; chosen ones are there without any job, too. */
function orderStates(counted, { states }) {
  const numbers = new Map([...states.map((state) => [state, 0]), ...counted.map((item) => [item.value, item.num_jobs])]);
  return STATES.filter((state) => numbers.has(state)).map((value) => ({ value, num_jobs: numbers.get(value) }));
}

function makeChoice() {
  const [text, number] = [element("span"), element("small")];
  const link = element("a", { "data-query": "" }, text, number);
  return { text, number, link, node: element("li", {}, link) };
}

/** Make the group of one name of labels; open unless each job has another value. */
function makeGroup(name, { num_values, isChosen }) {
  const [size, list, more] = [element("small"), element("ul"), element("small", { class: "more" })];
  const node = element("details", {}, element("summary", {}, name, " ", size), list, more);
  node.open = isChosen || num_values <= 12;
  return { size, list, more, node };
}
