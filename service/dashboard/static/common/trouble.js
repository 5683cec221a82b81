// What the head of a page says while requests fail, and work that is done again until the service answers.
import { describeError, isPassing } from "./api.js";
import { byId } from "./elements.js";

const PAUSE_MILLISECONDS = 2000;

/** Say at the top of the page why a request has failed. next: what to do if the service does not answer. */
export function showTrouble(error, next) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = describeError(error, next);
}

/** Do some work, and again after a pause as long as the service does not answer; return what it returns. */
export async function persist(work) {
  for (let hasFailed = false; ; hasFailed = true) {
    try {
      const result = await work();
      if (hasFailed) byId("trouble").hidden = true;
      return result;
    } catch (error) {
      showTrouble(error, "trying again");
      if (!isPassing(error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MILLISECONDS));
    }
  }
}
