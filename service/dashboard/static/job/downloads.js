// What a job has left: its model first, then all else, with a link for each thing that the service can send.
import { get } from "../common/api.js";
import { element } from "../common/elements.js";
import { count, fileSize, isKnown } from "../common/format.js";
import { copyLine } from "../common/copy.js";

const TITLES = {
  checkpoint: "Checkpoints", log: "Logs", profile: "Profiles", scores: "Scores of the evaluation rows",
  trackers: "Files of trackers", outcome: "Outcomes", document: "Document",
};

let shownVersion = null;

/** Fill the panel of downloads whenever `version` is another one. path: of the job in the API. */
export async function showDownloads(panel, job, path, version) {
  if (version === shownVersion) return;
  const { items } = await get(`${path}/artifacts`);
  shownVersion = version;
  panel.hidden = items.length === 0;
  const model = items.find((item) => item.kind === "model");
  showModel(panel.querySelector(".main-download"), model, path);
  panel.querySelector(".commands").replaceChildren(...listCommands(job, path, model));
  const others = items.filter((item) => item !== model);
  const details = panel.querySelector("details");
  details.hidden = others.length === 0;
  details.querySelector("summary").textContent = summarize(others);
  details.querySelector("div").replaceChildren(
    ...Object.keys(TITLES).flatMap((kind) => {
      const entries = others.filter((item) => item.kind === kind).map((item) => makeEntry(item, path));
      return entries.length ? [element("h3", {}, TITLES[kind]), element("ul", {}, ...entries)] : [];
    }),
  );
}

function showModel(target, model, path) {
  target.hidden = !model;
  if (!model) return;
  const size = describeSize(model);
  target.replaceChildren(
    ...(model.place
      ? ["The model is in ", element("code", {}, model.place)]
      : [
          element("a", { class: "button primary large", href: linkTo(model, path), download: "" }, "Download the model"),
          element("small", {}, ` ${[size, "one tar archive"].filter(Boolean).join(" · ")}`),
        ]),
  );
}

/** List the commands that fetch the model, or all that there is. */
function listCommands(job, path, model) {
  const command = `dlrm download ${job.id}${model ? "" : " --list"}`;
  const lines = [copyLine(command, "command that downloads with dlrm")];
  if (model && !model.place) {
    const url = `${location.origin}${path}/artifacts/model`;
    lines.push(copyLine(`curl -H "Authorization: Bearer $DLRM_API_KEY" ${url} | tar x`, "command that downloads with curl"));
  }
  return lines;
}

function summarize(items) {
  const numbers = ["checkpoint", "log", "profile"].map((kind) => [items.filter((item) => item.kind === kind).length, kind]);
  const counts = numbers.filter(([number]) => number).map(([number, kind]) => count(number, kind));
  return counts.length ? `All files: ${counts.join(", ")} and more` : "All files";
}

const linkTo = (item, path) => `${path}/artifacts/${item.name.split("/").map(encodeURIComponent).join("/")}`;
const describeSize = (item) => (isKnown(item.num_bytes) ? fileSize(item.num_bytes) : "");

function makeEntry(item, path) {
  const name = item.place ? element("code", {}, item.place) : element("a", { href: linkTo(item, path), download: "" }, item.name);
  const size = [describeSize(item), item.is_directory && !item.place ? "tar" : ""].filter(Boolean).join(", ");
  return element("li", {}, name, element("span", { class: "size" }, size));
}
