// The panel of what the list can be narrowed to, with the number of jobs of each choice.
import { get } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { integer } from "../common/format.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { filterParams, formatQuery, SPANS, STATES, toggle, toggleLabel } from "./query.js";

/** Shortest time from one count to the next while jobs change. */
const MIN_PAUSE_MILLISECONDS = 5000;
const MAX_PAUSE_MILLISECONDS = 60_000;
/** Multiple of the time that counting took for which nothing is counted again: an open tab costs little. */
const PAUSE_FACTOR = 200;
export const SPAN_WORDS = { hour: "last hour", day: "last day", week: "last week" };

/** The panel. show: called with each new count. */
export class Facets {
  constructor(show) {
    this.show = show;
    [this.states, this.owners, this.spans] = ["facet-states", "facet-owners", "facet-spans"].map((id) => makeChoices(byId(id)));
    this.labels = new KeyedRows(byId("facet-labels"), {
      getKey: ({ name }) => name,
      make: (label) => makeGroup(label, this.query),
      fill: (group, label) => this.#fillGroup(group, label),
    });
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
    const pause = PAUSE_FACTOR * (performance.now() - begun);
    this.pause = Math.min(Math.max(MIN_PAUSE_MILLISECONDS, pause), MAX_PAUSE_MILLISECONDS);
    this.#fill(facets);
    this.show(facets);
  }

  #fill(facets) {
    const { query } = this;
    const first = { ...query, before: "" };
    const states = orderStates(facets.states, query);
    byId("facet-states").parentElement.hidden = states.length === 0;
    choose(this.states, states, (value) => ({
      text: value.toLowerCase(),
      isChosen: query.states.includes(value),
      query: { ...first, states: toggle(query.states, value) },
    }));
    byId("facet-owners").parentElement.hidden = facets.owners.length < 2 && !query.owner;
    choose(this.owners, facets.owners, (value) => ({
      text: value,
      isChosen: query.owner === value,
      query: { ...first, owner: query.owner === value ? "" : value },
    }));
    const spans = ["", ...Object.keys(SPANS)].map((value) => ({ value, num_jobs: null }));
    choose(this.spans, spans, (value) => ({
      text: SPAN_WORDS[value] ?? "any time",
      isChosen: query.since === value,
      query: { ...first, since: value },
    }));
    byId("facet-labels").parentElement.hidden = facets.labels.length === 0;
    this.labels.show(facets.labels);
  }

  #fillGroup(group, { name, num_values, values }) {
    const { query } = this;
    group.size.textContent = num_values === 1 ? "" : integer(num_values);
    group.more.textContent =
      num_values > values.length ? `${integer(num_values - values.length)} more: find them by the search` : "";
    choose(group.choices, values, (value) => ({
      text: value || "(empty)",
      isChosen: query.labels.includes(`${name}:${value}`),
      query: toggleLabel(query, name, value),
    }));
  }
}

/** Show choices with their numbers of jobs. describe: returns text, isChosen and query of a value. */
const choose = (choices, values, describe) => choices.show(values.map((item) => ({ ...item, ...describe(item.value) })));

/** Order states as jobs go through them; chosen ones are there without any job, too. */
function orderStates(counted, { states }) {
  const numbers = new Map([...states.map((state) => [state, 0]), ...counted.map((item) => [item.value, item.num_jobs])]);
  return STATES.filter((state) => numbers.has(state)).map((value) => ({ value, num_jobs: numbers.get(value) }));
}

const makeChoices = (list) => new KeyedRows(list, { getKey: ({ value }) => value, make: makeChoice, fill: fillChoice });

function makeChoice() {
  const [text, number] = [element("span"), element("small")];
  const link = element("a", { "data-query": "" }, text, number);
  return { text, number, link, row: element("li", {}, link) };
}

function fillChoice(choice, { text, num_jobs, isChosen, query }) {
  choice.text.textContent = text;
  choice.number.textContent = num_jobs === null ? "" : integer(num_jobs);
  choice.link.href = formatQuery(query);
  if (isChosen) choice.link.setAttribute("aria-current", "true");
  else choice.link.removeAttribute("aria-current");
}

/** Make the group of one name of labels; open unless each job has another value. */
function makeGroup({ name, num_values }, query) {
  const [size, list, more] = [element("small"), element("ul"), element("small", { class: "more" })];
  const row = element("details", {}, element("summary", {}, name, " ", size), list, more);
  row.open = query.labels.some((label) => label.startsWith(`${name}:`)) || num_values <= 12;
  return { size, more, row, choices: makeChoices(list) };
}
