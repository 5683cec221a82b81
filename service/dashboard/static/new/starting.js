// Where a document begins: at a starting point, at the document of a job, or at a file.
import { byId, element } from "../common/elements.js";
import { ago, fileSize } from "../common/format.js";
import { listTrained, readJob, readStart, retrain } from "./origin.js";

/**
 * Start the buttons of the starting points, and begin with the document of the job that the address names.
 *
 * page: {editor, draft, root, maySubmit, noteChange, showProblem, showError}.
 */
export async function startStarting(page) {
  const file = byId("file");
  for (const button of document.querySelectorAll("[data-start]")) {
    const name = button.querySelector("strong").textContent;
    button.addEventListener("click", () => fill(page, `the starting point ${name}`, () => readStart(button.dataset.start)));
  }
  byId("open").addEventListener("click", () => file.click());
  file.addEventListener("change", () => openFile(page, file));
  byId("retrain").addEventListener("click", () => chooseTrained(page));
  byId("trained-cancel").addEventListener("click", () => byId("trained").close());
  byId("trained-choose").addEventListener("click", () => useTrained(page));
  const from = new URLSearchParams(location.search).get("from");
  if (from && page.draft.from !== from) await startFrom(page, from);
  else if (from) showOrigin({ id: from, name: from }, "");
}

/** Fill the text with what `read` returns, unless the user keeps what was typed; return whether it was filled. */
async function fill({ editor, draft, noteChange, showError }, what, read, from = "") {
  if (draft.isTyped && !confirm(`Replace the document by ${what}?`)) return false;
  try {
    const text = await read();
    draft.fill(text, from);
    editor.text = text;
  } catch (error) {
    showError(error);
    return false;
  }
  byId("origin").hidden = true;
  byId("problem").hidden = true;
  noteChange();
  return true;
}

async function startFrom(page, id) {
  let job = null;
  const read = async () => {
    const found = await readJob(id, page.root, page.maySubmit);
    job = found.job;
    return found.text;
  };
  if (await fill(page, `the one of ${id}`, read, id)) showOrigin(job, ", without what has its default");
}

function showOrigin(job, detail) {
  const link = element("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, job.name);
  byId("origin").replaceChildren("This is the document of the job ", link, `${detail}. Submit makes a new job of it.`);
  byId("origin").hidden = false;
}

async function chooseTrained({ showError }) {
  try {
    const jobs = await listTrained();
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
  const read = async () => retrain((await readJob(id, page.root, page.maySubmit)).text, id);
  if (await fill(page, `one that goes on from ${id}`, read)) {
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
    if (await fill({ ...page, showError }, chosen.name, () => readFile(chosen))) page.editor.field.focus();
  }
  // So that the same file can be opened again.
  file.value = "";
}
