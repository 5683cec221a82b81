// What of a job document differs from the defaults of its schema.

/** List the fields of `document` that differ: path, value, default (undefined if a document must state it), meaning. */
export function listDifferences(document, schema) {
  const differences = [];
  collect(document, {}, schema, schema, [], differences);
  return differences;
}

/** Collect the fields of `values` that differ. defaults: of the object as a whole, where they say more than its fields. */
function collect(values, defaults, owner, schema, path, differences) {
  for (const [name, value] of Object.entries(values)) {
    const field = owner.properties?.[name];
    if (!field || isEqual(value, field.default) || (name in defaults && isEqual(value, defaults[name]))) continue;
    const inner = findObject(field, schema);
    const place = [...path, name];
    const before = differences.length;
    if (isObject(value) && inner) {
      collect(value, findDefaults(value, field.default), inner, schema, place, differences);
    }
    // An object of defaults alone still differs from none, or from another kind of value.
    const isSection = isObject(value) && inner && isObject(field.default ?? {}) && field.default !== null;
    if (differences.length > before || isSection) continue;
    differences.push({ path: place, value, default: defaults[name] ?? field.default, meaning: field.description ?? inner?.description ?? "" });
  }
}

/** Return the defaults of an object's fields; an optimizer of another name has other ones, which no schema tells. */
const findDefaults = (value, known) => (isObject(known) && known.name === value.name ? known : {});

/** Return the schema of the object that a field holds; undefined if it holds none, or free names. */
export function findObject(field, schema) {
  const name = [field, ...(field.anyOf ?? []), ...(field.allOf ?? [])].find((option) => option.$ref)?.$ref;
  const found = name && schema.$defs[name.slice("#/$defs/".length)];
  return found?.properties && found;
}

/** Make the shortest document that stands for the same job: the fields that differ from their defaults. */
export function shorten(differences) {
  const short = {};
  for (const { path, value } of differences) {
    let owner = short;
    for (const name of path.slice(0, -1)) owner = owner[name] ??= {};
    owner[path.at(-1)] = value;
  }
  return short;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function isEqual(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => name in other && isEqual(one[name], other[name]));
}
