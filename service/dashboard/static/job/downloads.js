// What a job has left, with a link for each thing that the service can send.
import { get } from "../common/api.js";
import { element } from "../common/elements.js";
import { fileSize, isKnown } from "../common/format.js";

let shownVersion = null;

/** Fill the list of `details` whenever `version` is another one. */
export async function showDownloads(details, path, version) {
  if (version === shownVersion) return;
  const { items } = await get(`${path}/artifacts`);
  details.hidden = items.length === 0;
  details.querySelector("ul").replaceChildren(...items.map((item) => makeEntry(item, path)));
  shownVersion = version;
}

function makeEntry(item, path) {
  const href = `${path}/artifacts/${item.name.split("/").map(encodeURIComponent).join("/")}`;
  const name = item.place ? element("code", {}, item.place) : element("a", { href, download: "" }, item.name);
  const size = isKnown(item.num_bytes) ? fileSize(item.num_bytes) : "";
  return element("li", {}, name, ` ${[size, item.is_directory && !item.place ? "tar" : ""].filter(Boolean).join(", ")}`);
}
