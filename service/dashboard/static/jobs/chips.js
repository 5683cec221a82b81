// What the list is narrowed to, as chips that can each be removed.
import { byId, element } from "../common/elements.js";
import { scatterAddress } from "../common/sweep_link.js";
import { SPAN_WORDS } from "./facets.js";
import { EVERYTHING, formatQuery, isFiltered, toggle } from "./query.js";

/** Show a chip for each filter of a query, and links to all jobs of its labels as points. */
export function showChips(query) {
  const without = (changes) => formatQuery({ ...query, before: "", ...changes });
  const chips = [
    ...query.states.map((state) => [`state: ${state.toLowerCase()}`, { states: toggle(query.states, state) }]),
    ...query.labels.map((label) => [label.replace(":", ": "), { labels: toggle(query.labels, label) }]),
    query.owner && [`owner: ${query.owner}`, { owner: "" }],
    query.q.trim() && [`contains “${query.q.trim()}”`, { q: "" }],
    query.since && [`created in the ${SPAN_WORDS[query.since]}`, { since: "" }],
    query.ended && [`ended in the ${SPAN_WORDS[query.ended]}`, { ended: "" }],
  ].filter(Boolean);
  byId("chips").hidden = !isFiltered(query);
  byId("chips").replaceChildren(
    ...chips.map(([text, changes]) =>
      element(
        "li",
        {},
        element(
          "a",
          { class: "chip", href: without(changes), "data-query": "", title: "Remove this filter" },
          text,
          element("span", { "aria-label": "remove", role: "img" }, "×"),
        ),
      ),
    ),
    element("li", {}, element("a", { href: formatQuery(EVERYTHING), "data-query": "" }, "Clear filters")),
    ...query.labels.map((label) => element("li", {}, element("a", { href: scatterAddress(label) }, `All of ${label.replace(":", ": ")} as points`))),
  );
}
