// One control for each kind of value: it shows what the text says, and calls back with what the text shall say.
import { element } from "../common/elements.js";
import { formatValue, splitQuantity } from "./schema.js";
import { isEqual } from "./text.js";

/**
 * Make the control of a node: {element, inputs, show(value), showDefault(value)}. onChange gets the new value, undefined
 * to leave the field out. The value is undefined where the text has none.
 */
export function makeControl(node, id, onChange) {
  const make = { choice, flag, number, quantity, text, texts, numbers, pairs, union }[node.kind];
  return make(node, id, onChange);
}

const labelDefault = (node, value) => (node.isRequired ? "choose…" : `default · ${formatValue(node, value)}`);

function choice(node, id, onChange) {
  const first = element("option", { value: "" });
  const select = element("select", { id }, first, ...node.words.map((word, index) => element("option", { value: index }, formatValue(node, word))));
  select.addEventListener("change", () => onChange(select.value === "" ? undefined : node.words[select.value]));
  return {
    element: select,
    inputs: [select],
    show(value) {
      const index = node.words.indexOf(value);
      select.value = index < 0 ? "" : index;
    },
    showDefault: (value) => (first.textContent = labelDefault(node, value)),
  };
}

function flag(node, id, onChange) {
  const box = element("input", { id, type: "checkbox" });
  let preset = node.default;
  box.addEventListener("change", () => onChange(box.checked));
  return {
    element: box,
    inputs: [box],
    show: (value) => (box.checked = value ?? preset ?? false),
    showDefault: (value) => (preset = value),
  };
}

/** Make a control of one line or several: `read` makes a value of the text, null while it is none; `write` a text. */
function typed(input, node, { read, write }, onChange) {
  const parse = () => (input.value.trim() === "" ? undefined : read(input.value));
  const emit = (isLast) => {
    const value = parse();
    input.toggleAttribute("data-odd", value === null);
    // A field that is empty for a moment keeps its line and its comment.
    if (value !== null && (value !== undefined || isLast)) onChange(value);
  };
  input.addEventListener("input", () => emit(false));
  input.addEventListener("change", () => emit(true));
  return {
    element: input,
    inputs: [input],
    show(value) {
      // What is being typed stays as it is.
      if (isEqual(parse(), value) || (document.activeElement === input && input.value.trim() === "")) return;
      input.value = value === undefined ? "" : write(value);
      input.removeAttribute("data-odd");
    },
    showDefault: (value) => (input.placeholder = node.isRequired ? "" : formatValue(node, value)),
  };
}

const readNumber = (text) => {
  const number = Number(text.trim().replace(/(?<=\d)[_,](?=\d)/g, ""));
  return Number.isFinite(number) ? number : null;
};

const readNumbers = (text) => {
  const found = text.split(/[,\s]+/).filter(Boolean).map(readNumber);
  return found.includes(null) ? null : found;
};

const number = (node, id, onChange) =>
  typed(element("input", { id, inputmode: "decimal", autocomplete: "off" }), node, { read: readNumber, write: String }, onChange);

function text(node, id, onChange) {
  const input = element("input", { id, autocomplete: "off", spellcheck: "false", ...(node.maxLength && { maxlength: node.maxLength }) });
  return typed(input, node, { read: (value) => value, write: String }, onChange);
}

const lines = (id) => element("textarea", { id, rows: 2, wrap: "off", spellcheck: "false", autocomplete: "off" });

const texts = (node, id, onChange) =>
  typed(lines(id), node, {
    read: (value) => value.split("\n").map((line) => line.trim()).filter(Boolean),
    write: (value) => [value].flat().join("\n"),
  }, onChange);

const numbers = (node, id, onChange) =>
  typed(element("input", { id, inputmode: "decimal", autocomplete: "off" }), node, {
    read: readNumbers,
    write: (value) => [value].flat().join(", "),
  }, onChange);

const pairs = (node, id, onChange) =>
  typed(lines(id), node, {
    read(value) {
      const found = value.split("\n").filter((line) => line.trim()).map((line) => /^\s*([^=:]+?)\s*[=:]\s*(.*?)\s*$/.exec(line));
      return found.includes(null) ? null : Object.fromEntries(found.map(([, name, value]) => [name, value]));
    },
    write: (value) => Object.entries(value).map(([name, text]) => `${name} = ${text}`).join("\n"),
  }, onChange);

/** Make the control of a number with a choice of units: memory, or seconds. */
function quantity(node, id, onChange) {
  const unit = element("select", { "aria-label": "unit" }, ...node.units.map(([name]) => element("option", {}, name)));
  const findFactor = () => node.units.find(([name]) => name === unit.value)[1];
  const split = (value) => {
    const written = /^\s*([\d.]+)\s*([A-Za-z]+)\s*$/.exec(value);
    if (written && node.units.some(([name]) => name === written[2])) return [Number(written[1]), written[2]];
    return typeof value === "number" ? splitQuantity(value, node.units) : null;
  };
  const read = (value) => {
    const number = readNumber(value);
    if (number === null) return null;
    return node.isText && findFactor() !== 1 ? `${number}${unit.value}` : number * findFactor();
  };
  const write = (value) => {
    const parts = split(value);
    if (parts === null) return String(value);
    unit.value = parts[1];
    return String(parts[0]);
  };
  const input = element("input", { id, inputmode: "decimal", autocomplete: "off" });
  const control = typed(input, node, { read, write }, onChange);
  unit.addEventListener("change", () => input.value.trim() && input.dispatchEvent(new Event("input")));
  return {
    ...control,
    element: element("span", { class: "quantity" }, input, unit),
    inputs: [input, unit],
    showDefault(value) {
      const [number, name] = typeof value === "number" ? splitQuantity(value, node.units) : ["none", unit.value];
      input.placeholder = String(number);
      if (input.value === "") unit.value = name;
    },
  };
}

/** Make the control of a field that takes words or another kind of value: a line with the words as suggestions. */
function union(node, id, onChange) {
  const words = element("datalist", { id: `${id}-words` }, ...node.words.map((word) => element("option", { value: word })));
  const input = element("input", { id, autocomplete: "off", spellcheck: "false", ...(node.words.length && { list: words.id }) });
  const kinds = node.options.map(({ kind }) => kind);
  const read = (value) => {
    const text = value.trim();
    if (node.words.includes(text)) return text;
    if (kinds.includes("numbers")) return readNumbers(text);
    return kinds.includes("number") ? readNumber(text) : null;
  };
  const isTable = (value) => typeof value === "object" && !kinds.includes("numbers");
  const control = typed(input, node, { read, write: (value) => (isTable(value) ? "" : [value].flat().join(", ")) }, onChange);
  return {
    ...control,
    element: element("span", { class: "quantity" }, input, words),
    show(value) {
      control.show(value);
      input.readOnly = value !== undefined && isTable(value);
      if (input.readOnly) input.placeholder = "set in the text";
    },
  };
}
