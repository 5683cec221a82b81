// The head of every signed-in page: where one can go, who is signed in, and what is free.
import { get, leaveForSignIn, request } from "./api.js";
import { byId } from "./elements.js";
import { bytes, count } from "./format.js";
import { persist, showTrouble } from "./trouble.js";

/** Start the head of a page; return who is signed in: name, owner, role. */
export async function startHeader() {
  byId("signout").addEventListener("click", async () => {
    try {
      await request("DELETE", "/v1/session");
      leaveForSignIn();
    } catch (error) {
      showTrouble(error, "you are still signed in");
    }
  });
  const me = await persist(() => get("/v1/me"));
  byId("me").textContent = me.owner === me.role ? me.owner : `${me.owner} · ${me.role}`;
  for (const link of document.querySelectorAll("[data-role]")) link.hidden = link.dataset.role !== me.role;
  return me;
}

/** Say what is free, beside the link to the page of capacity. */
export async function showCapacity() {
  const capacity = await get("/v1/capacity");
  // A cluster need not tell what it has.
  if (capacity.num_cores === null) return;
  byId("capacity").textContent =
    `${capacity.num_cores_free} of ${count(capacity.num_cores, "core")} free · ` +
    `${bytes(capacity.memory_bytes_free)} of ${bytes(capacity.memory_bytes)} free`;
}
