// Where a document begins: at a starting point, at the document of a job, or at a file.
import { get, noteSilence } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { ago, fileSize } from "../common/format.js";
import { changeText, readValue } from "./text.js";

/** Start the buttons of the starting points. page: {editor, draft, noteChange, showProblem, showError}. */
export function startStarting(page) {
  const file = byId("file");
  for (const button of document.querySelectorAll("[data-start]")) {
    button.addEventListener("click", () => fill(page, () => readStart(button.dataset.start)));
  }
  byId("bring-back").addEventListener("click", () => bringBack(page));
  byId("empty").addEventListener("click", () => fill(page, () => ""));
  byId("open").addEventListener("click", () => file.click());
  file.addEventListener("change", () => openFile(page, file));
  byId("retrain").addEventListener("click", () => chooseTrained(page));
  byId("trained-cancel").addEventListener("click", () => byId("trained").close());
  byId("trained-choose").addEventListener("click", () => useTrained(page));
}

/** Begin with the document of the job that the address names; without one, say that a draft has stayed. */
export async function beginAsAddressed(page) {
  const address = new URLSearchParams(location.search);
  byId("aside").hidden = !page.draft.hasAside;
  byId("unsent").hidden = address.has("from") || !page.draft.isTyped;
  if (address.has("from")) await startFrom(page, address.get("from"), address.getAll("set"));
}

/** Read the text of a starting point. */
async function readStart(name) {
  const response = await fetch(new URL(`starts/${name}.toml`, import.meta.url)).catch(noteSilence);
  return response.text();
}

/** Read the shortest document of a job: {toml, document}. */
const readDocument = (id) => get(`/v1/jobs/${encodeURIComponent(id)}/document`);

/** Fill the text with what `read` returns; what was typed before can be brought back. Return whether it was filled. */
async function fill(page, read, from = "") {
  try {
    const text = await read();
    page.draft.fill(text, from);
    showText(page, text);
  } catch (error) {
    page.showError(error);
    return false;
  }
  return true;
}

function showText({ editor, draft, noteChange }, text) {
  editor.text = text;
  for (const id of ["origin", "problem", "unsent"]) byId(id).hidden = true;
  byId("aside").hidden = !draft.hasAside;
  noteChange();
}

/** Bring back what was typed before a starting point has replaced it. */
const bringBack = (page) => showText(page, page.draft.takeAside());

/** Begin with the document of a job and the changes of the address, unless the text has begun so before a reload. */
async function startFrom(page, id, settings) {
  const changes = settings.map(readChange);
  let name = id;
  const read = async () => {
    const { toml, document } = await readDocument(id);
    name = document.name ?? id;
    return changes.reduce((text, { path, value }) => (path ? changeText(text, path, value) : text), toml);
  };
  const isNew = page.draft.from !== location.search;
  if (isNew && !(await fill(page, read, location.search))) return;
  const link = element("a", { href: `/jobs/${encodeURIComponent(id)}` }, name);
  const list = (isWanted) => changes.filter(isWanted).map(({ words }) => words).join(", ");
  const made = list(({ path }) => path);
  const odd = list(({ path }) => !path);
  byId("origin").replaceChildren(
    "This is the document of the job ",
    link,
    `${made && `, with ${made}`}. Submit makes a new job of it.`,
    odd && ` Left out of the address, since it is no FIELD:VALUE in TOML: ${odd}.`,
  );
  byId("origin").hidden = false;
}

/** Read a change of an address, such as `run.epochs:3`: {words, path, value}, and the words alone if it is malformed. */
function readChange(words) {
  const [, field, text] = /^([\w.]+):(.+)$/s.exec(words) ?? [];
  try {
    return { words: `${field} = ${text}`, path: field.split("."), value: readValue(text) };
  } catch {
    return { words };
  }
}

async function chooseTrained({ showError }) {
  try {
    const jobs = (await get("/v1/jobs?state=SUCCEEDED&limit=50")).items;
    byId("trained-jobs").replaceChildren(...jobs.map(({ id, name, finished_at }) => element("option", { value: id }, `${name}, ${ago(finished_at)} (${id})`)));
    byId("trained-jobs").hidden = byId("trained-choose").hidden = jobs.length === 0;
    if (jobs.length === 0) byId("trained-hint").textContent = "No job has succeeded yet. Train one first: the quick start takes about a minute.";
    byId("trained").showModal();
  } catch (error) {
    showError(error);
  }
}

async function useTrained(page) {
  const id = byId("trained-jobs").value;
  byId("trained").close();
  const read = async () => changeText((await readDocument(id)).toml, ["run", "warm_start"], { from: id });
  if (await fill(page, read)) {
    byId("origin").textContent = "The new job starts with the weights of that job. Name the new rows in data.train; the columns must be the same.";
    byId("origin").hidden = false;
  }
}

/** Read a file: UTF-16 if its mark says so, as PowerShell writes it, else UTF-8; a mark is left out. */
async function readFile(chosen) {
  const bytes = new Uint8Array(await chosen.arrayBuffer());
  const mark = bytes[0] * 256 + bytes[1];
  const encoding = mark === 0xfffe ? "utf-16le" : mark === 0xfeff ? "utf-16be" : "utf-8";
  return new TextDecoder(encoding, { fatal: true }).decode(bytes);
}

async function openFile(page, file) {
  const [chosen] = file.files;
  const maxBytes = Number(file.dataset.maxBytes);
  if (!chosen) return;
  if (chosen.size > maxBytes) {
    page.showProblem("The file is too large", `${chosen.name} has ${fileSize(chosen.size)}, a document at most ${fileSize(maxBytes)}.`);
  } else {
    const showError = () => page.showProblem("The file is not UTF-8 text", `Save ${chosen.name} as UTF-8.`);
    if (await fill({ ...page, showError }, () => readFile(chosen))) page.editor.field.focus();
  }
  // So that the same file can be opened again.
  file.value = "";
}
