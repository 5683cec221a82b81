// Requests to the REST API with the session's cookie, and the loop that keeps a page up to date.

const POLL_MILLISECONDS = 2000;
const NEXT_PAGE = "dlrm.next-page";

/** A refusal; its message is for people. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the service answered ${status}`);
    this.status = status;
  }
}

export async function request(method, path, body) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  const response = await fetch(path, options);
  if (response.status === 401 && location.pathname !== "/signin") {
    sessionStorage.setItem(NEXT_PAGE, location.pathname);
    location.replace("/signin");
    return new Promise(() => {}); // the page is leaving
  }
  const isJson = response.status !== 204 && (response.headers.get("Content-Type") ?? "").includes("json");
  const answer = isJson ? await response.json() : {};
  if (!response.ok) throw new ApiError(response.status, answer);
  return answer;
}

export const get = (path) => request("GET", path);

/** Where to go after signing in: the page that asked for it. */
export function nextPage() {
  const path = sessionStorage.getItem(NEXT_PAGE) ?? "/";
  sessionStorage.removeItem(NEXT_PAGE);
  return path;
}

/** Call `update` now and every two seconds while the page is seen, until it answers false. */
export function keepUpToDate(update) {
  const trouble = document.getElementById("trouble");
  let isAsked = false;
  const once = async () => {
    if (document.hidden || isAsked) return;
    isAsked = true;
    try {
      const goesOn = await update();
      trouble.hidden = true;
      if (goesOn === false) clearInterval(timer);
    } catch (error) {
      trouble.hidden = false;
      trouble.textContent =
        error instanceof ApiError ? error.message : "The service does not answer; this page tries again.";
      if (error instanceof ApiError && error.status < 500) clearInterval(timer);
    } finally {
      isAsked = false;
    }
  };
  const timer = setInterval(once, POLL_MILLISECONDS);
  document.addEventListener("visibilitychange", once);
  once();
  return once;
}

/** The parts that every signed-in page has. */
export function startHeader() {
  document.getElementById("signout").addEventListener("click", async () => {
    await request("DELETE", "/v1/session");
    location.replace("/signin");
  });
}

export async function showCapacity(bytes) {
  const capacity = await get("/v1/capacity");
  document.getElementById("capacity").textContent =
    `${capacity.num_cores_free} of ${capacity.num_cores} cores free · ` +
    `${bytes(capacity.memory_bytes_free)} of ${bytes(capacity.memory_bytes)} free`;
}
