// Tab of the document of a job, with the numbers that were derived from it.
import { byId } from "../common/elements.js";
import { showDerived } from "../plan/derived.js";
import { EventStore } from "./event_store.js";
import { path, startJob } from "./frame.js";

const events = new EventStore(path);

function update(job) {
  byId("document").textContent = JSON.stringify(job.spec, null, 2);
  showDerived(byId("derived"), events.findLast("decided")?.details.decisions ?? [], job.derived);
}

startJob({ update, names: ["event"], events });
