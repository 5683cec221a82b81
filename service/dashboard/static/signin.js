// Page of the sign-in link. Its token is in the fragment, which browsers send to no server and no log records.
import { nextPage, request } from "./api.js";

const progress = document.getElementById("progress");
const form = document.getElementById("form");
const field = document.getElementById("token");

const extractToken = (text) => new URLSearchParams(text.slice(text.indexOf("#") + 1)).get("token") ?? text.trim();

function showForm(message) {
  progress.textContent = message;
  form.hidden = false;
  field.focus();
}

async function signIn(token) {
  try {
    await request("POST", "/v1/session", { token });
    location.replace(nextPage());
  } catch (error) {
    showForm(`Not signed in: ${error.message}`);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(extractToken(field.value));
});

/** Sign in with the token in the fragment, and remove it from the address and the history. */
function signInWithFragment() {
  const fragment = location.hash;
  if (!fragment) return false;
  history.replaceState(null, "", location.pathname);
  signIn(extractToken(fragment));
  return true;
}

window.addEventListener("hashchange", signInWithFragment);
if (!signInWithFragment()) showForm("Open the sign-in link that the service printed, or paste it here.");
