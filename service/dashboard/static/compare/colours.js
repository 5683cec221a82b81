// Colours of jobs: each has the same one in all tables and charts, however they are ordered.

const places = new Map();

/** Give each of the jobs one of eight colours; those that have one keep it. */
export function assignColours(ids) {
  for (const id of places.keys()) if (!ids.includes(id)) places.delete(id);
  for (const id of [...ids].sort()) {
    if (places.has(id)) continue;
    const taken = new Set(places.values());
    let place = 1;
    while (taken.has(place)) place += 1;
    places.set(id, place);
  }
}

/** Return the name of the CSS variable with the colour of a job. */
export const getColourName = (id) => `--series-${places.get(id) ?? 1}`;

/** Give a node the colour of a job, as `--own`. */
export const setColour = (node, id) => node.style.setProperty("--own", `var(${getColourName(id)})`);
