// The table of keys.
import { byId, element } from "../common/elements.js";
import { ago } from "../common/format.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { dateTime } from "../common/times.js";
import { expiryText, keyState } from "./state.js";

/** Table of keys. revoke: called with the key that an admin wants to revoke; null for others, who get no actions. */
export class KeyTable {
  constructor(revoke, ownKeyId) {
    this.revoke = revoke;
    this.ownKeyId = ownKeyId;
    this.rows = new KeyedRows(byId("keys").querySelector("tbody"), {
      getKey: (key) => key.id,
      make: (key) => this.#make(key),
      fill: (parts, key) => fill(parts, key),
    });
    byId("action-column").hidden = revoke === null;
  }

  show(keys) {
    this.rows.show(keys);
    byId("keys").hidden = keys.length === 0;
  }

  #make(key) {
    const parts = {
      state: element("span", { class: "key-state" }),
      expiry: element("small"),
      used: element("td", { class: "number", "data-label": "Last used" }),
      revoke: element("button", { type: "button", class: "danger", "aria-label": `Revoke ${key.name} of ${key.owner}` }, "Revoke…"),
    };
    parts.revoke.addEventListener("click", () => this.revoke(key));
    const action = element("td", { class: "number" }, parts.revoke);
    action.hidden = this.revoke === null;
    const created = element("td", { class: "number", "data-label": "Created", title: dateTime(key.created_at) }, ago(key.created_at));
    const own = key.id === this.ownKeyId ? [element("small", {}, "you are signed in with this key")] : [];
    parts.row = element(
      "tr",
      {},
      element("th", { scope: "row" }, key.name, element("small", { class: "id" }, key.id), ...own),
      element("td", { "data-label": "Owner" }, key.owner),
      element("td", { "data-label": "Role" }, key.role),
      element("td", {}, parts.state, parts.expiry),
      created,
      parts.used,
      action,
    );
    return parts;
  }
}

function fill(parts, key) {
  parts.state.textContent = keyState(key);
  parts.state.dataset.state = keyState(key);
  parts.expiry.textContent = expiryText(key);
  parts.used.textContent = key.last_used_at ? ago(key.last_used_at) : "never";
  if (key.last_used_at) parts.used.title = dateTime(key.last_used_at);
  parts.revoke.hidden = key.revoked_at !== null;
}
