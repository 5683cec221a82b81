// The sign-in link carries its token in the fragment, which no server and no log ever sees.
import { nextPage, request } from "./api.js";

const progress = document.getElementById("progress");
const form = document.getElementById("form");
const field = document.getElementById("token");

const tokenIn = (text) => new URLSearchParams(text.slice(text.indexOf("#") + 1)).get("token") ?? text.trim();

function ask(message) {
  progress.textContent = message;
  form.hidden = false;
  field.focus();
}

async function signIn(token) {
  try {
    await request("POST", "/v1/session", { token });
    location.replace(nextPage());
  } catch (error) {
    ask(`Not signed in: ${error.message}`);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(tokenIn(field.value));
});

/** Use the token in the fragment, and take it out of the address and the history. */
function useFragment() {
  const fragment = location.hash;
  if (!fragment) return false;
  history.replaceState(null, "", location.pathname);
  signIn(tokenIn(fragment));
  return true;
}

window.addEventListener("hashchange", useFragment);
if (!useFragment()) ask("Open the sign-in link that the service printed, or paste it here.");
