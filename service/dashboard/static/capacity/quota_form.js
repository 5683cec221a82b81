// The dialog in which an admin sets or removes the quota of an owner.
import { request } from "../common/api.js";
import { byId } from "../common/elements.js";
import { FormFaults } from "../common/form_faults.js";

const GIB = 2 ** 30;
const dialog = byId("quota");
const form = dialog.querySelector("form");
const faults = new FormFaults(form);
const LIMITS = ["num_cores", "memory_bytes", "num_gpus", "num_running", "num_queued"];
let onChange = () => {};

/** Call a function after each change of a quota. */
export function watchQuotas(call) {
  onChange = call;
}

/** Open the dialog. owner: empty to have its name typed. quota: the present one; null if absent. */
export function openQuota(owner, quota) {
  faults.clear();
  form.elements.owner.value = owner;
  form.elements.owner.readOnly = owner !== "";
  for (const name of LIMITS) form.elements[name].value = showLimit(name, quota?.[name]);
  byId("quota-remove").hidden = quota === null;
  dialog.showModal();
  form.elements[owner === "" ? "owner" : "num_cores"].focus();
}

const showLimit = (name, value) => (value ?? null) === null ? "" : name === "memory_bytes" ? Number((value / GIB).toFixed(3)) : value;

/** Read the limits of the form; return null if one is no number. An empty field sets no limit. */
function readLimits() {
  const quota = {};
  let isValid = true;
  for (const name of LIMITS) {
    const field = form.elements[name];
    const number = field.value.trim() === "" ? null : Number(field.value);
    const value = name === "memory_bytes" && number !== null ? Math.round(number * GIB) : number;
    if (field.validity.badInput || (value !== null && (!Number.isInteger(value) || value < 0))) {
      faults.show(name, name === "memory_bytes" ? "a number of GiB, such as 64" : "a whole number, 0 or more");
      isValid = false;
    }
    quota[name] = value;
  }
  return isValid ? quota : null;
}

async function send(method, body) {
  const owner = form.elements.owner.value.trim();
  try {
    await request(method, `/v1/quotas/${encodeURIComponent(owner)}`, body);
  } catch (error) {
    faults.showError(error);
    return;
  }
  dialog.close();
  onChange();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  faults.clear();
  if (form.elements.owner.value.trim() === "") return faults.show("owner", "the owner of keys, or * for everybody else");
  const quota = readLimits();
  if (quota) send("PUT", quota);
});
byId("quota-remove").addEventListener("click", () => send("DELETE"));
byId("quota-close").addEventListener("click", () => dialog.close());
byId("add-quota").addEventListener("click", () => openQuota("", null));
