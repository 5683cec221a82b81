// The confirmation before a key is revoked, which names what stops working.
import { get, request } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { count } from "../common/format.js";

const dialog = byId("revoke");
const MAX_NAMED = 5;

/** Ask whether a key shall be revoked, and revoke it; return whether that was done. */
export async function confirmAndRevoke(key, ownKeyId) {
  byId("revoke-name").textContent = `${key.name} of ${key.owner}`;
  showConsequences(["Looking for what uses it…"]);
  dialog.returnValue = "";
  dialog.showModal();
  showConsequences([...(await findConsequences(key, ownKeyId))]);
  const isChosen = await new Promise((resolve) => {
    const finish = () => resolve(dialog.returnValue === "revoke");
    if (dialog.open) dialog.addEventListener("close", finish, { once: true });
    else finish();
  });
  if (!isChosen) return false;
  await request("DELETE", `/v1/keys/${encodeURIComponent(key.id)}`);
  return true;
}

const showConsequences = (sentences) =>
  byId("revoke-consequences").replaceChildren(...sentences.map((sentence) => element("li", {}, sentence)));

async function findConsequences(key, ownKeyId) {
  const [schedules, webhooks] = await Promise.all(["/v1/schedules", "/v1/webhooks"].map(get)).catch(() => [{ items: [] }, { items: [] }]);
  const isOfKey = (item) => item.key_id === key.id;
  const [schedule, webhook] = [schedules.items.filter(isOfKey), webhooks.items.filter(isOfKey)];
  const sentences = [
    "Programs that send this key are refused from now on, and browsers that signed in with it or with its links are signed out.",
  ];
  if (key.id === ownKeyId) sentences.unshift("You are signed in with this key: you will be signed out.");
  if (schedule.length) sentences.push(`${count(schedule.length, "schedule")} will submit nothing more: ${name(schedule.map((item) => item.name))}.`);
  if (webhook.length) sentences.push(`${count(webhook.length, "webhook")} will send nothing more: ${name(webhook.map((item) => item.url))}.`);
  return [...sentences, "Jobs that were submitted with it go on. A revoked key stays in the list, and cannot be made valid again."];
}

const name = (names) => [...names.slice(0, MAX_NAMED), ...(names.length > MAX_NAMED ? [`${names.length - MAX_NAMED} more`] : [])].join(", ");
