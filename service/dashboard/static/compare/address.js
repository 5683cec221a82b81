// What the page shows is in its address, so that whoever gets the address sees the same.

/** Largest number of jobs side by side: more colours cannot be told apart. */
export const MAX_JOBS = 8;

const query = () => new URLSearchParams(location.search);

/** Return a parameter of the address; empty if absent. */
export const getParameter = (name) => query().get(name) ?? "";

/** Return all values of a parameter, separated by commas or given several times. */
export const getList = (name) => [...new Set(query().getAll(name).flatMap((text) => text.split(",")).map((text) => text.trim()))].filter(Boolean);

/** Whether the address asks for many jobs, not for some side by side. */
export const isScatter = () => ["label", "q", "view"].some((name) => query().has(name));

/** Write an address with commas as they are, since they are easier to read. */
function makeAddress(parameters) {
  const text = new URLSearchParams(parameters).toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return text ? `/compare?${text}` : "/compare";
}

/** Return the address of some jobs side by side. */
export const sideAddress = (ids) => makeAddress(ids.length ? { ids: ids.join(",") } : {});

/** Set parameters of the address; empty ones are left out. isStep: whether "back" returns to the address before. */
export function setParameters(changes, { isStep = false } = {}) {
  const changed = query();
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value.length === 0) changed.delete(name);
    else changed.set(name, Array.isArray(value) ? value.join(",") : value);
  }
  const address = makeAddress(changed);
  if (isStep) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}
