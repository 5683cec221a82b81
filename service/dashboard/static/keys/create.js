// The form that makes a key. A signed-in browser may not, since the key would outlive its session: the form asks for an
// admin's key and sends it with this one request, or shows the command that does the same.
import { ApiError, noteSilence } from "../common/api.js";
import { byId } from "../common/elements.js";
import { copyButton } from "../common/copy.js";
import { FormFaults } from "../common/form_faults.js";

const form = byId("create");
const faults = new FormFaults(form);
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

/** Check the form; return the body of the request, or null after an error at a field. */
function check() {
  const { name, owner, role, days } = readForm();
  if (!name) faults.show("name", "a name, such as laptop");
  const number = days === "" ? null : Number(days);
  if (number !== null && !Number.isInteger(number)) faults.show("expires_in_days", "a whole number of days, or nothing for a key that never expires");
  if (!form.elements.admin_key.value.trim()) faults.show("admin_key", "a key of the role admin; it is sent with this request alone");
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
  }).catch(noteSilence);
  const answer = await response.json().catch(noteSilence);
  if (!response.ok) throw new ApiError(response.status, answer);
  return answer;
}

function showFaults(error) {
  // The key in the form is wrong, or not an admin's.
  if (error.status === 401 || error.status === 403) return faults.show("admin_key", error.message);
  if (error.status === 409) return faults.show("name", error.message);
  return faults.showError(error, RENAMED);
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
    faults.clear();
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
