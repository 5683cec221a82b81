// What the jobs of each owner hold, against its quota.
import { byId, element } from "../common/elements.js";
import { integer, isKnown } from "../common/format.js";
import { KeyedRows } from "../common/keyed_rows.js";
import { RESOURCES, cellClass } from "./amounts.js";
import { openQuota } from "./quota_form.js";

const EVERYBODY = "*";
const NOTHING = { num_jobs: 0, num_cores: 0, memory_bytes: 0, num_gpus: 0, num_queued: 0 };
const COLUMNS = [
  ...RESOURCES,
  { name: "num_jobs", limit: "num_running", title: "Running", number: integer },
  { name: "num_queued", limit: "num_queued", title: "Waiting", number: integer },
];

let isAdmin = false;
const rows = new KeyedRows(byId("owners").querySelector("tbody"), { getKey: ({ owner }) => owner, make, fill });

/** Show owners with their use and quota. me: who is signed in, as an admin may change quotas. */
export function showOwners(use, quotas, me) {
  isAdmin = me.role === "admin";
  const held = new Map(use.owners.map((owner) => [owner.owner, owner]));
  const limits = new Map(quotas.map((quota) => [quota.owner, quota]));
  const names = [...new Set([...held.keys(), ...limits.keys()])].sort();
  rows.show(
    names.map((owner) => ({
      owner,
      use: owner === EVERYBODY ? null : (held.get(owner) ?? NOTHING),
      own: limits.get(owner) ?? null,
      quota: limits.get(owner) ?? limits.get(EVERYBODY) ?? null,
    })),
  );
  byId("owners").hidden = names.length === 0;
  byId("owners-empty").hidden = names.length > 0;
  byId("add-quota").hidden = !isAdmin;
  byId("quota-column").hidden = !isAdmin;
}

function make({ owner }) {
  const parts = {
    note: element("small"),
    cells: COLUMNS.map((column) => ({
      words: element("span"),
      bar: element("progress", { "aria-label": `${column.title} of ${owner} in use, of its quota` }),
      cell: element("td", { class: cellClass(column), "data-label": column.title }),
    })),
    change: element("button", { type: "button", class: "quiet" }),
  };
  const name = owner === EVERYBODY ? "everybody else" : owner;
  for (const { words, bar, cell } of parts.cells) cell.append(words, bar);
  parts.action = element("td", { class: "number" }, parts.change);
  parts.change.addEventListener("click", () => openQuota(owner, parts.own));
  parts.row = element("tr", {}, element("th", { scope: "row" }, name, parts.note), ...parts.cells.map(({ cell }) => cell), parts.action);
  return parts;
}

function fill(parts, { owner, use, own, quota }) {
  parts.own = own;
  parts.note.textContent = describeQuota(owner, own, quota);
  COLUMNS.forEach(({ name, limit, number, unit }, index) => {
    const { words, bar } = parts.cells[index];
    const most = quota?.[limit ?? name];
    const used = use?.[name];
    const amount = use === null ? (isKnown(most) ? `at most ${number(most)}` : "no limit") : isKnown(most) ? `${number(used)} of ${number(most)}` : number(used);
    words.textContent = [amount, amount === "no limit" ? "" : unit].filter(Boolean).join(" ");
    bar.hidden = use === null || !isKnown(most);
    bar.max = Math.max(most ?? 1, 1);
    bar.value = Math.min(used ?? 0, bar.max);
    bar.toggleAttribute("data-full", isKnown(most) && used >= most);
  });
  parts.action.hidden = !isAdmin;
  parts.change.textContent = own ? "Change quota…" : "Set quota…";
  parts.change.setAttribute("aria-label", `${own ? "Change" : "Set"} the quota of ${owner}`);
}

function describeQuota(owner, own, quota) {
  if (owner === EVERYBODY) return "each owner without a quota of its own";
  if (own) return "quota of its own";
  return quota ? "quota of everybody else" : "no quota";
}
