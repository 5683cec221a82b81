// Page of a new job: a document in TOML that the service checks, and makes a job of.
import { ApiError, postToml } from "../common/api.js";
import { describeFault, showCheck, showList } from "./check.js";
import { forgetKey, getKey, loadText, saveText } from "./draft.js";
import { element } from "../common/elements.js";
import { fileSize } from "../common/format.js";
import { showCapacity, startHeader } from "../common/header.js";
import { getPreset, setPreset } from "./preset.js";
import { Updates } from "../common/updates.js";

const LINES_ABOVE = 3;
const MALFORMED_LINE = /\(at line (\d+), column \d+\)/;

const byId = (id) => document.getElementById(id);
const field = byId("document");
const file = byId("file");
const problem = byId("problem");
const buttons = [byId("check"), byId("submit")];
const words = new Map(buttons.map((button) => [button, button.textContent]));
const presets = [...byId("preset").querySelectorAll("input")];
let checkedText = null;

function showText(text) {
  field.value = text;
  noteChange();
}

/** Keep what has been typed, and show the preset that it names. */
function noteChange() {
  if (field.value !== loadText()) saveText(field.value);
  const preset = getPreset(field.value);
  for (const choice of presets) choice.checked = choice.value === preset;
  field.removeAttribute("aria-invalid");
  showAge();
}

/** Say where the document has changed since it was checked. */
function showAge() {
  byId("age").hidden = checkedText === null || checkedText === field.value;
}

function showProblem(title, message, faults = []) {
  const list = element("ul", { class: "faults" });
  showList(list, faults.map(describeFault));
  problem.replaceChildren(element("strong", {}, title), ...(message ? [element("p", {}, message)] : []), list);
  problem.hidden = false;
}

function showError(error) {
  if (!(error instanceof ApiError)) {
    showProblem("The service does not answer", "The document is kept here. Try again: it makes one job at most.");
    return;
  }
  const { title, message, errors, status } = error;
  const hint = status === 403 ? ": ask an administrator for another key, and sign in with it" : "";
  showProblem(title, errors.length ? "" : message + hint, errors);
  if (status === 400 || status === 422) field.setAttribute("aria-invalid", "true");
  const line = MALFORMED_LINE.exec(message);
  if (line) selectLine(Number(line[1]));
}

function selectLine(number) {
  const lines = field.value.split("\n");
  const start = lines.slice(0, number - 1).reduce((length, line) => length + line.length + 1, 0);
  field.focus();
  field.setSelectionRange(start, start + lines[number - 1].length);
  field.scrollTop = (number - 1 - LINES_ABOVE) * parseFloat(getComputedStyle(field).lineHeight);
}

function setBusy(isBusy) {
  for (const button of buttons) {
    button.disabled = isBusy;
    button.textContent = words.get(button);
  }
}

/** Send the document, by a function that returns whether the page is being left; the button says so meanwhile. */
async function send(button, busyWords, action) {
  problem.hidden = true;
  if (!field.value.trim()) {
    showProblem("The document is empty", "Write one, or open a file.");
    return;
  }
  setBusy(true);
  button.textContent = busyWords;
  let isLeaving = false;
  try {
    isLeaving = await action(field.value);
  } catch (error) {
    showError(error);
  }
  if (isLeaving) return;
  setBusy(false);
  // A button that cannot be pressed loses the focus.
  if (document.activeElement === document.body) button.focus();
}

const check = () =>
  send(byId("check"), "Checking…", async (text) => {
    showCheck(await postToml("/v1/plans", text));
    checkedText = text;
    showAge();
    byId("verdict").scrollIntoView({ block: "nearest" });
    return false;
  });

const submit = () =>
  send(byId("submit"), "Submitting…", async (text) => {
    const job = await postToml("/v1/jobs", text, { "Idempotency-Key": getKey() });
    forgetKey();
    location.assign(`/jobs/${encodeURIComponent(job.id)}`);
    return true;
  });

/** Read a file: UTF-16 if its mark says so, as PowerShell writes it, else UTF-8; a mark is left out. */
async function readText(chosen) {
  const bytes = new Uint8Array(await chosen.arrayBuffer());
  const mark = bytes[0] * 256 + bytes[1];
  const encoding = mark === 0xfffe ? "utf-16le" : mark === 0xfeff ? "utf-16be" : "utf-8";
  return new TextDecoder(encoding, { fatal: true }).decode(bytes);
}

async function openFile() {
  const [chosen] = file.files;
  const maxBytes = Number(file.dataset.maxBytes);
  if (!chosen) return;
  if (chosen.size > maxBytes) {
    showProblem("The file is too large", `${chosen.name} has ${fileSize(chosen.size)}, a document at most ${fileSize(maxBytes)}.`);
  } else if (!field.value.trim() || confirm(`Replace the document by ${chosen.name}?`)) {
    try {
      showText(await readText(chosen));
      field.focus();
    } catch {
      showProblem("The file is not UTF-8 text", `Save ${chosen.name} as UTF-8.`);
    }
  }
  // So that the same file can be opened again.
  file.value = "";
}

startHeader();
new Updates(() => showCapacity());
showText(loadText());
field.addEventListener("input", noteChange);
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !buttons[0].disabled) check();
});
byId("preset").addEventListener("change", (event) => showText(setPreset(field.value, event.target.value)));
byId("open").addEventListener("click", () => file.click());
file.addEventListener("change", openFile);
byId("check").addEventListener("click", check);
byId("submit").addEventListener("click", submit);
// A page that the browser has kept comes back as it was left.
window.addEventListener("pageshow", (event) => event.persisted && setBusy(false));
