// Saved views: names for queries, kept by this browser.
import { byId, element } from "../common/elements.js";
import { EVERYTHING, formatQuery, isFiltered, parseQuery } from "./query.js";

const STORED = "dlrm.views";
const MAX_NAME = 40;
const BUILT_IN = [
  { name: "All", query: "/" },
  { name: "Running", query: formatQuery({ ...EVERYTHING, states: ["STARTING", "RUNNING"] }) },
  { name: "Waiting", query: formatQuery({ ...EVERYTHING, states: ["QUEUED", "RECOVERING"] }) },
  { name: "Failed in the last day", query: formatQuery({ ...EVERYTHING, states: ["FAILED"], ended: "day" }) },
];

/** The links to views, and the dialog that saves one. */
export class Views {
  constructor() {
    byId("save-view").addEventListener("click", () => {
      byId("view-name").value = "";
      byId("view-dialog").showModal();
    });
    byId("view-dialog").addEventListener("close", () => {
      const name = byId("view-name").value.trim().slice(0, MAX_NAME);
      if (byId("view-dialog").returnValue === "save" && name) this.#save(name);
      byId("view-dialog").returnValue = "";
    });
    window.addEventListener("storage", (event) => event.key === STORED && this.show(this.query));
  }

  /** Show all views, and which of them is open. */
  show(query) {
    this.query = query;
    const open = formatQuery({ ...query, before: "" });
    const own = read();
    byId("save-view").hidden = !isFiltered(query) || [...BUILT_IN, ...own].some((view) => view.query === open);
    byId("views").replaceChildren(
      ...BUILT_IN.map((view) => element("li", {}, makeLink(view, open))),
      ...own.map((view) => element("li", { class: "own" }, makeLink(view, open), this.#makeRemoval(view))),
    );
  }

  #makeRemoval(view) {
    const button = element("button", { type: "button", class: "quiet", "aria-label": `Remove the view ${view.name}` }, "×");
    button.addEventListener("click", () => {
      write(read().filter(({ name }) => name !== view.name));
      this.show(this.query);
      byId("views").querySelector("a").focus();
    });
    return button;
  }

  #save(name) {
    const query = formatQuery({ ...this.query, before: "" });
    write([...read().filter((view) => view.name !== name), { name, query }]);
    this.show(this.query);
  }
}

function makeLink({ name, query }, open) {
  const link = element("a", { href: query, "data-query": "" }, name);
  if (query === open) link.setAttribute("aria-current", "true");
  return link;
}

/** Read the views of this browser; those of an older page, or by other hands, as far as they are valid. */
function read() {
  try {
    return JSON.parse(localStorage.getItem(STORED) ?? "[]")
      .filter(({ name, query }) => typeof name === "string" && typeof query === "string")
      .map(({ name, query }) => ({ name, query: formatQuery(parseQuery(query)) }));
  } catch {
    return [];
  }
}

const write = (views) => localStorage.setItem(STORED, JSON.stringify(views));
