// Requests to the REST API with the session's cookie.

const NEXT_PAGE = "dlrm.next-page";
/** Longest time of a read: an answer over a connection that is no longer there would never come. */
const READ_MILLISECONDS = 30_000;

/** Failed request; its message is readable text. status: of the answer; 0 if none came. errors: fields at fault, each with
 * a message and what would be valid. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the service answered ${status}`);
    this.status = status;
    this.title = problem.title ?? "";
    this.errors = problem.errors ?? [];
  }
}

/** Whether the same request may succeed later: the service does not answer, is busy, or has a fault of its own. */
export const isPassing = ({ status }) => status === 0 || status >= 500 || status === 429;

/** Say why a request has failed, or a page. next: what to do if the service does not answer. */
export function describeError(error, next = "try again") {
  if (!(error instanceof ApiError)) {
    console.error(error);
    return `This page has failed: ${error.message.replace(/\.$/, "")}. Reload it.`;
  }
  return error.status ? error.message : `The service does not answer; ${next}.`;
}

/** List the fields at fault, by their last names; one without a name for all else. */
export function listFaults(error) {
  const faults = error.errors?.length ? error.errors : [{ field: "", message: describeError(error) }];
  return faults.map(({ field, message, valid }) => [field.replace(/^.*\./, ""), valid ? `${message} (valid: ${valid})` : message]);
}

/** Throw what a request throws if no answer, or only a part of it, has come. */
export function noteSilence() {
  throw new ApiError(0, { title: "the service does not answer" });
}

let isLeaving = false;

/** Leave for the sign-in page, once: a second navigation would abort the first one. */
export function leaveForSignIn() {
  if (isLeaving) return;
  isLeaving = true;
  location.replace("/signin");
}

export function request(method, path, body) {
  const signal = method === "GET" ? AbortSignal.timeout(READ_MILLISECONDS) : undefined;
  if (body === undefined) return send(path, { method, signal });
  return send(path, { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
}

/** Send a text in TOML, with further headers. */
export const postToml = (path, body, headers = {}) =>
  send(path, { method: "POST", body, headers: { "Content-Type": "application/toml", ...headers } });

async function send(path, options) {
  const response = await fetch(path, options).catch(noteSilence);
  if (response.status === 401 && location.pathname !== "/signin") {
    sessionStorage.setItem(NEXT_PAGE, location.pathname + location.search);
    leaveForSignIn();
    return new Promise(() => {}); // the browser is leaving this page
  }
  const isJson = response.status !== 204 && (response.headers.get("Content-Type") ?? "").includes("json");
  const answer = isJson ? await response.json().catch(noteSilence) : {};
  if (!response.ok) throw new ApiError(response.status, answer);
  return answer;
}

export const get = (path) => request("GET", path);

/** Return the path to open after sign-in: the page that required it. */
export function nextPage() {
  const path = sessionStorage.getItem(NEXT_PAGE) ?? "/";
  sessionStorage.removeItem(NEXT_PAGE);
  return path;
}
