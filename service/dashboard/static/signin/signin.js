// Page that signs a browser in, with an API key or a sign-in link. The token of a link is in the fragment, which browsers
// send to no server and no log records.
import { describeError, nextPage, request } from "../common/api.js";

const KEY_PREFIX = "dlrm_";

const progress = document.getElementById("progress");
const refusal = document.getElementById("refusal");
const form = document.getElementById("form");
const field = document.getElementById("credential");

const extractToken = (text) => new URLSearchParams(text.slice(text.indexOf("#") + 1)).get("token");

function showForm() {
  progress.textContent = "Sign in with an API key, or open a sign-in link.";
  form.hidden = false;
  field.focus();
}

function showRefusal(message) {
  refusal.textContent = `Not signed in: ${message}`;
  refusal.hidden = false;
  showForm();
}

async function signIn(credentials) {
  refusal.hidden = true;
  try {
    await request("POST", "/v1/session", credentials);
    location.replace(nextPage());
  } catch (error) {
    showRefusal(describeError(error));
  }
}

/** Sign in with what a person has typed or pasted. */
function signInWithText(text) {
  const token = extractToken(text);
  if (text.startsWith(KEY_PREFIX)) return signIn({ key: text });
  if (token) return signIn({ token });
  return showRefusal(`this is neither an API key (${KEY_PREFIX}…) nor a sign-in link (http…#token=…)`);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  signInWithText(field.value.trim());
});

/** Sign in with the token in the fragment, and remove it from the address and the history. */
function signInWithFragment() {
  const token = extractToken(location.hash);
  if (!token) return false;
  history.replaceState(null, "", location.pathname);
  signIn({ token });
  return true;
}

window.addEventListener("hashchange", signInWithFragment);
if (!signInWithFragment()) showForm();
