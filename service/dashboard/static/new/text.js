// The text of a job document in TOML: its values, the lines where they stand, and changes of single values.
import { parse, patch, TomlDocument } from "../vendor/toml-patch/toml-patch.js";

/** Read a text: {value, places, fault}. A fault is {line, message}; value and places are null then. */
export function readText(text) {
  try {
    const document = new TomlDocument(text);
    return { value: document.toJsObject, places: listPlaces(document.cst), fault: null };
  } catch (error) {
    const message = error.message.split("\n").at(-1);
    return { value: null, places: null, fault: { line: error.line ?? 1, message } };
  }
}

/** List where fields stand: {path, line, end}, in the order of the text; lines count from 1. */
function listPlaces(blocks) {
  const places = [];
  const lengths = new Map();
  const note = (path, { loc }) => places.push({ path, line: loc.start.line, end: loc.end.line });
  // A table below a list of tables belongs to its last entry.
  const resolve = (names) =>
    names.reduce((path, name) => {
      const length = lengths.get([...path, name].join("\0"));
      return length === undefined ? [...path, name] : [...path, name, length - 1];
    }, []);
  const addValue = (value, path) => {
    const items = value.items?.filter((item) => item.type === "InlineItem") ?? [];
    if (value.type === "InlineTable") items.forEach(({ item }) => addKey(item, path));
    if (value.type === "InlineArray") {
      items.forEach(({ item }, index) => {
        note([...path, index], item);
        addValue(item, [...path, index]);
      });
    }
  };
  const addKey = (item, above) => {
    if (item.type !== "KeyValue") return;
    const path = [...above, ...item.key.value];
    note(path, item);
    addValue(item.value, path);
  };
  for (const block of blocks) {
    if (block.type === "KeyValue") addKey(block, []);
    if (block.type !== "Table" && block.type !== "TableArray") continue;
    const names = block.key.item.value;
    if (block.type === "TableArray") {
      const list = [...resolve(names.slice(0, -1)), names.at(-1)].join("\0");
      lengths.set(list, (lengths.get(list) ?? 0) + 1);
    }
    const path = resolve(names);
    note(path, block.key);
    block.items.forEach((item) => addKey(item, path));
  }
  return places;
}

const startsWith = (path, start) => start.every((part, index) => String(path[index]) === String(part));

/** Find the line of a field, or of the nearest thing around it that the text has; null if nothing of it is there. */
export function findLine(places, path) {
  const below = places.find((place) => startsWith(place.path, path));
  if (below) return below.line;
  const around = places.filter((place) => startsWith(path, place.path));
  around.sort((a, b) => b.path.length - a.path.length);
  return around[0]?.line ?? null;
}

/** Find the path of the field in a line: the innermost one, or the table that the line belongs to. */
export function findPath(places, line) {
  const around = places.filter((place) => place.line <= line);
  const here = around.filter((place) => place.end >= line);
  return (here.at(-1) ?? around.at(-1))?.path ?? [];
}

/** Return the value at a path; undefined if absent. */
export const getIn = (value, path) => path.reduce((inner, part) => inner?.[part], value);

/** Read a value as a line of a text has it, such as `[64, 32]`. Throws if it is none. */
export const readValue = (text) => parse(`value = ${text}`).value;

/**
 * Return the text with one value changed, or left out if it is undefined; comments, order and layout stay. A table that
 * becomes empty goes too, unless `isKept(path)` says that it means something.
 */
export function changeText(text, path, value, isKept = () => false) {
  const wanted = parse(text);
  if (value === undefined) removeIn(wanted, path, isKept);
  else setIn(wanted, path, value);
  // TOML 1.0, which the service reads, has no comma at the end of a table in one line.
  const changed = patch(text, wanted, { trailingComma: false, multilineTable: false }) + (text ? "" : "\n");
  if (!isEqual(parse(changed), wanted)) throw new Error(`the text cannot be changed at ${path.join(".")}`);
  return changed;
}

function setIn(target, path, value) {
  const [name, ...rest] = path;
  if (rest.length === 0) {
    target[name] = value;
    return;
  }
  // Own names alone: `__proto__` of an address would change every object of the page.
  if (!Object.hasOwn(target, name) || typeof target[name] !== "object") target[name] = {};
  setIn(target[name], rest, value);
}

function removeIn(target, path, isKept) {
  const parents = path.map((_, index) => getIn(target, path.slice(0, index)));
  for (let index = path.length - 1; index >= 0; index--) {
    const parent = parents[index];
    if (parent === undefined) continue;
    if (Array.isArray(parent)) parent.splice(path[index], 1);
    else delete parent[path[index]];
    if (Object.keys(parent).length || isKept(path.slice(0, index))) return;
  }
}

/** Whether two values of documents are the same, whatever the order of their names. */
export function isEqual(one, other) {
  if (one === other) return true;
  if (!one || !other || typeof one !== "object" || typeof other !== "object") return false;
  if (one instanceof Date || other instanceof Date) return String(one) === String(other);
  const names = Object.keys(one);
  return (
    Array.isArray(one) === Array.isArray(other) &&
    names.length === Object.keys(other).length &&
    names.every((name) => isEqual(one[name], other[name]))
  );
}
