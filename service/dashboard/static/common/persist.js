// Work that is tried again until the service answers.
import { byId } from "./elements.js";
import { describeError, isPassing } from "./api.js";

const PAUSE_MILLISECONDS = 2000;

/** Show in the head of the page that a request has failed. */
export function showTrouble(error) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = isPassing(error) ? describeError(error).replace(/; try again\.$/, "; trying again.") : describeError(error);
}
