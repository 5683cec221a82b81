// Page of a new job: a document in TOML beside a form of its fields, which the service checks and makes a job of.
import { get, postToml } from "../common/api.js";
import { byId, element } from "../common/elements.js";
import { showCapacity, startHeader } from "../common/header.js";
import { persist } from "../common/trouble.js";
import { Updates } from "../common/updates.js";
import { describeFault, showCheck, showList } from "./check.js";
import { Draft } from "./draft.js";
import { Editor } from "./editor.js";
import { Form } from "./form.js";
import { showHelp } from "./help.js";
import { findMalformed, LightCheck, NOTHING } from "./light_check.js";
import { findNode, readSchema } from "./schema.js";
import { beginAsAddressed, startStarting } from "./starting.js";
import { changeText, findLine, findPath, getIn, isEqual, readText } from "./text.js";

/** Length of a text that takes too long to read with every key, and the pause after the last key until it is read. */
const LONG_TEXT = 20_000;
const PAUSE_MILLISECONDS = 400;

const draft = new Draft();
const field = byId("document");
const problem = byId("problem");
const buttons = [byId("check"), byId("submit")];
const words = new Map(buttons.map((button) => [button, button.textContent]));
const editor = new Editor(field, byId("gutter"), byId("bubble"), showHelpOfLine);
const lightCheck = new LightCheck(takeAnswer);
let root = null;
let form = null;
let maySubmit = true;
/** What the text says as far as it could be read: its values, and their places. */
let read = { value: {}, places: [], fault: null };
/** Last answer of the light check on a text that could be read. */
let found = { document: null, errors: [] };
let checkedText = null;
/** Field whose help is shown. */
let helped = null;
let pause = null;

/** Follow what is typed: at once, or after a pause if the text is long. */
function noteTyping() {
  draft.save(editor.text);
  clearTimeout(pause);
  if (editor.text.length < LONG_TEXT) noteChange();
  else pause = setTimeout(noteChange, PAUSE_MILLISECONDS);
}

/** Follow the text, which has changed: by the hands of the user, by the form, or by a starting point. */
function noteChange() {
  const text = editor.text;
  clearTimeout(pause);
  draft.save(text);
  editor.showNumbers();
  byId("age").hidden = checkedText === null || checkedText === text;
  const now = readText(text);
  // A text that does not parse while it is typed would make the form flicker: the light check greys it.
  if (now.fault) read = { ...read, fault: now.fault };
  else {
    read = now;
    freezeForm(null);
    form?.show(read.value);
  }
  if (text.trim() === "") {
    lightCheck.stop();
    takeAnswer({ ...NOTHING, trouble: "The document is empty: choose a starting point, or set fields in the form." });
  } else lightCheck.follow(text, now.fault || !maySubmit ? NOTHING : null);
}

/** Show what the light check has found: at its lines, in the list, and in the form. */
function takeAnswer({ document, errors, fault, trouble }) {
  const malformed = read.fault ?? fault;
  if (malformed) freezeForm(malformed);
  found = { document, errors: malformed ? [] : errors };
  const lines = new Map(malformed ? [[malformed.line, malformed.message]] : []);
  for (const error of found.errors) {
    const line = findLine(read.places, error.field.split("."));
    if (line) lines.set(line, [lines.get(line), `${error.field}: ${error.message}`].filter(Boolean).join("; "));
  }
  editor.mark(lines);
  if (!malformed) form?.showFilled(document);
  form?.showFaults(new Map(found.errors.map((error) => [error.field, describeShortly(error)])));
  const number = malformed ? 1 : found.errors.length;
  if (number) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
  if (helped) showHelpOf(helped);
  byId("finding-state").textContent = trouble ?? countFaults(malformed, number);
  byId("finding-state").dataset.kind = !trouble && !number ? "good" : "";
  showList(byId("finding-list"), malformed ? [describeLine(malformed)] : found.errors.map((error) => describeFault(error, goToField)));
}

function countFaults(malformed, number) {
  if (malformed) return "This line cannot be read:";
  if (number) return number === 1 ? "One field is at fault:" : `${number} fields are at fault:`;
  return maySubmit ? "Nothing is at fault." : "";
}

const describeShortly = ({ message, valid }) => message + (valid ? ` (valid: ${valid})` : "");

function describeLine({ line, message }) {
  const link = element("button", { type: "button", class: "link" }, `line ${line}`);
  link.addEventListener("click", () => editor.select(line));
  return [link, " ", message];
}

/** Grey the form while the text has a line that cannot be read; free it without one. */
function freezeForm(fault) {
  byId("form").disabled = fault !== null || form === null;
  byId("frozen").hidden = fault === null;
  if (fault) byId("frozen").textContent = `Line ${fault.line} of the text cannot be read: ${fault.message}. The form waits until it can.`;
}

/** Change the value of a node in the text; one that is the default again is left out. */
function changeField(node, value) {
  const isLeftOut = value === undefined || (isEqual(value, node.default) && hasPlainDefault(node));
  try {
    const isKept = (path) => Boolean(findNode(root, path)?.isOptional);
    editor.text = changeText(editor.text, node.path, isLeftOut ? undefined : value, isKept);
  } catch {
    freezeForm(readText(editor.text).fault ?? { line: findLine(read.places, node.path) ?? 1, message: "change it in the text" });
    return;
  }
  noteChange();
  const line = findLine(read.places, node.path);
  if (line) editor.reveal(line);
  showHelpOf(node);
}

/** Whether a field that is left out has the default of the schema, which presets and optimizers replace. */
function hasPlainDefault(node) {
  const name = [node.path[0], "name"];
  return read.value.preset === undefined && (node.path[1] === "name" || getIn(read.value, name) === undefined || node.path.length === 1);
}

function showHelpOf(node) {
  helped = node;
  const key = node.path.join(".");
  const fault = found.errors.find((error) => error.field === key);
  const isStale = read.fault !== null;
  showHelp(node, {
    value: isStale ? undefined : getIn(read.value, node.path),
    preset: form.getDefault(node),
    line: isStale ? null : findLine(read.places.filter(({ path }) => isEqual(path, node.path)), node.path),
    fault: fault && describeShortly(fault),
  });
}

function showHelpOfLine(line) {
  const node = form && findNode(root, findPath(read.places, line));
  if (node) showHelpOf(node);
}

/** Go to a field: in the form, else to its line. */
function goToField(path) {
  const line = findLine(read.places, path);
  const isTextShown = byId("workbench").dataset.shown === "text";
  if (line && isTextShown) editor.select(line);
  else if (!form.focus(path) && line) editor.select(line);
  field.closest("section").scrollIntoView({ block: "nearest" });
}

function showProblem(title, message, faults = []) {
  const list = element("ul", { class: "faults" });
  showList(list, faults.map((fault) => describeFault(fault, goToField)));
  problem.replaceChildren(element("strong", {}, title), ...(message ? [element("p", {}, message)] : []), list);
  problem.hidden = false;
}

function showError(error) {
  if (error.status === 0) {
    showProblem("The service does not answer", "The document is kept here. Try again: it makes one job at most.");
    return;
  }
  const { title = "This page has failed", message, errors = [], status } = error;
  const hint = status === 403 ? ": ask an administrator for another key, and sign in with it" : "";
  showProblem(title, errors.length ? "" : message + hint, errors);
  const malformed = findMalformed(error);
  if (malformed) editor.select(malformed.line);
}

function setBusy(isBusy) {
  for (const button of buttons) {
    button.disabled = isBusy || !maySubmit;
    button.textContent = words.get(button);
  }
}

/** Send the document, by a function that returns whether the page is being left; the button says so meanwhile. */
async function send(button, busyWords, action) {
  problem.hidden = true;
  if (!editor.text.trim()) {
    showProblem("The document is empty", "Choose a starting point, write one, or open a file.");
    return;
  }
  setBusy(true);
  button.textContent = busyWords;
  let isLeaving = false;
  try {
    isLeaving = await action(editor.text);
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
    const answer = await postToml("/v1/plans", text);
    const { items } = answer.fits.now ? { items: [] } : await get("/v1/jobs?state=STARTING&state=RUNNING&limit=5");
    showCheck(answer, items, goToField);
    checkedText = text;
    byId("age").hidden = checkedText === editor.text;
    byId("result").scrollIntoView({ block: "start" });
    return false;
  });

const submit = () =>
  send(byId("submit"), "Submitting…", async (text) => {
    const job = await postToml("/v1/jobs", text, { "Idempotency-Key": draft.getKey() });
    draft.noteSubmission();
    location.assign(`/jobs/${encodeURIComponent(job.id)}`);
    return true;
  });

function chooseSide({ currentTarget: { dataset } }) {
  byId("workbench").dataset.shown = dataset.side;
  for (const button of document.querySelectorAll("[data-side]")) button.setAttribute("aria-pressed", button.dataset.side === dataset.side);
}

async function start() {
  const me = startHeader();
  const page = { editor, draft, noteChange, showProblem, showError };
  // At once: a click meanwhile would be lost.
  startStarting(page);
  root = readSchema(await persist(() => get("/v1/schema")));
  form = new Form(root, byId("first"), byId("all"), changeField, showHelpOf);
  for (const id of ["first-title", "all-heading"]) byId(id).hidden = false;
  byId("loading").hidden = true;
  byId("filter").addEventListener("input", (event) => form.filter(event.target.value));
  maySubmit = (await me).role !== "viewer";
  byId("viewer").hidden = maySubmit;
  setBusy(false);
  noteChange();
  beginAsAddressed(page);
}

editor.text = draft.load();
field.addEventListener("input", noteTyping);
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !buttons[0].disabled) check();
});
byId("check").addEventListener("click", check);
byId("submit").addEventListener("click", submit);
for (const button of document.querySelectorAll("[data-side]")) button.addEventListener("click", chooseSide);
// A page that the browser has kept comes back as it was left.
window.addEventListener("pageshow", (event) => event.persisted && setBusy(false));
new Updates(() => showCapacity());
start();
