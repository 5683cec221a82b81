// The form that makes a key. A signed-in browser may not, since the key would outlive its session: the form asks for an
// admin's key and sends it with this one request, or shows the command that does the same.
import { ApiError } from "../common/api.js";
import { byId } from "../common/elements.js";
import { copyButton } from "../common/copy.js";

const form = byId("create");
const FIELDS = ["name", "owner", "role", "expires_in_days", "admin_key"];
/** Names of fields of the API that have another name in the form. */
const RENAMED = { expires_at: "expires_in_days" };
let secret = "";

/** Quote a word for a shell, if it needs that. */
const quote = (word) => (/^[\w./@:-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** Return the command of a terminal that makes the key which the form describes. */
function describeCommand() {
  const { name, owner, role, days } = readForm();
  const options = [owner && `--owner ${quote(owner)}`, `--role ${role}`, days && `--expires-in-days ${quote(days)}`];
  return ["dlrm keys create", quote(name || "NAME"), ...options.filter(Boolean)].join(" ");
}

function readForm() {
  const { name, owner, role, expires_in_days: days } = form.elements;
  return { name: name.value.trim(), owner: owner.value.trim(), role: role.value, days: days.value.trim() };
}

function clearErrors() {
  for (const name of FIELDS) {
    form.elements[name].removeAttribute("aria-invalid");
    byId(`create-${name}-error`).textContent = "";
  }
  byId("create-trouble").hidden = true;
}

function showError(name, message) {
  const field = FIELDS.includes(name) ? form.elements[name] : null;
  if (field === null) {
    byId("create-trouble").hidden = false;
    byId("create-trouble").textContent = message;
    return;
  }
  field.setAttribute("aria-invalid", "true");
  byId(`create-${name}-error`).textContent = message;
  form.querySelector("[aria-invalid]").focus();
}

/** Check the form; return the body of the request, or null after an error at a field. */
function check() {
  const { name, owner, role, days } = readForm();
  if (!name) showError("name", "a name, such as laptop");
  const number = days === "" ? null : Number(days);
  if (number !== null && !Number.isInteger(number)) showError("expires_in_days", "a whole number of days, or nothing for a key that never expires");
  if (!form.elements.admin_key.value.trim()) showError("admin_key", "a key of the role admin; it is sent with this request alone");
  if (form.querySelector("[aria-invalid]")) return null;
  return { name, role, owner: owner || null, expires_in_days: number };
}

/** Send the request with the key of the form instead of the session's cookie. */
async function send(body) {
  const response = await fetch("/v1/keys", {
    method: "POST",
    credentials: "omit",
    headers: { Authorization: `Bearer ${form.elements.admin_key.value.trim()}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new ApiError(response.status, answer);
  return answer;
}

function showFaults(error) {
  if (!(error instanceof ApiError)) return showError("", "The service does not answer; try again.");
  // The key in the form is wrong, or not an admin's.
  if (error.status === 401 || error.status === 403) return showError("admin_key", error.message);
  if (error.status === 409) return showError("name", error.message);
  if (error.errors.length === 0) return showError("", error.message);
  for (const { field, message, valid } of error.errors) {
    const name = field.replace(/^.*\./, "");
    showError(RENAMED[name] ?? name, valid ? `${message} (valid: ${valid})` : message);
  }
}

function showSecret(key) {
  secret = key.key;
  byId("secret-of").textContent = `${key.name} of ${key.owner}, ${key.role}`;
  byId("secret").textContent = secret;
  byId("made").hidden = false;
  byId("made").focus();
}

/** Start the form. onCreated: called after a key was made. */
export function startForm(onCreated) {
  const command = byId("command");
  const show = () => (command.textContent = describeCommand());
  command.after(copyButton(describeCommand));
  byId("secret").after(copyButton(() => secret));
  form.addEventListener("input", show);
  show();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearErrors();
    const body = check();
    if (body === null) return;
    try {
      const key = await send(body);
      // The admin's key stays nowhere.
      form.reset();
      show();
      showSecret(key);
      onCreated();
    } catch (error) {
      showFaults(error);
    }
  });
  byId("forget").addEventListener("click", () => {
    secret = "";
    byId("secret").textContent = "";
    byId("made").hidden = true;
  });
}
