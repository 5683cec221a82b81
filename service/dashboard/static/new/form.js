// The form of a job document: a row for each field of the schema, in groups. It holds nothing that the text does not say.
import { element } from "../common/elements.js";
import { makeControl } from "./controls.js";
import { findNode, nameInWords } from "./schema.js";
import { getIn, isEqual } from "./text.js";

/** Fields that people set first, with their names here. */
const FIRST = [
  ["name", "Name of the job"],
  ["preset", "Preset"],
  ["data.train", "Training files"],
  ["data.format", "Format of the files"],
  ["data.schema.label", "Label column"],
  ["batch.global_size", "Batch size"],
  ["run.epochs", "Epochs"],
  ["dense_optimizer.name", "Dense optimizer"],
  ["dense_optimizer.learning_rate", "Dense learning rate"],
  ["table_optimizer.learning_rate", "Table learning rate"],
  ["resources.workers_per_node", "Workers on each machine"],
  ["resources.threads_per_worker", "Threads of each worker"],
  ["resources.memory", "Memory on each machine"],
];
const MAX_ENTRIES = 20;
const keyOf = (path) => path.join(".");

/**
 * Form below `first` and `all`. onChange is called with a node and its new value, undefined to leave it out; onFocus with
 * the node of the control that has got the focus.
 */
export class Form {
  #rows = [];
  #groups = [];
  #count = 0;
  #value = {};
  #filled = { value: {}, document: null };
  #faults = new Map();
  #opened = null;

  constructor(root, first, all, onChange, onFocus) {
    this.onChange = onChange;
    this.onFocus = onFocus;
    this.all = all;
    for (const [path, name] of FIRST) this.#addRow(first, findNode(root, path.split(".")), name);
    const isGroup = ({ kind }) => kind === "group";
    const own = { ...root, path: ["job"], name: "job", description: "", fields: root.fields.filter((node) => !isGroup(node)) };
    for (const node of [own, ...root.fields.filter(isGroup)]) this.#addSection(node);
  }

  /** Show a document. */
  show(value) {
    this.#value = value;
    for (const group of this.#groups) group.show();
    for (const row of this.#rows) this.#showRow(row);
    for (const group of this.#groups) group.count?.();
  }

  /** Show what the defaults of the present document are: `document` is the same filled in, null if that is not known. */
  showFilled(document) {
    this.#filled = { value: this.#value, document };
    this.show(this.#value);
  }

  /** Show the faults of fields: a map of messages by dotted path. */
  showFaults(faults) {
    this.#faults = faults;
    for (const row of this.#rows) this.#showFault(row);
    for (const group of this.#groups) group.count?.();
  }

  /** Put the focus on the control of a field, or of the nearest field around it; return whether there is one. */
  focus(path) {
    for (let end = path.length; end > 0; end--) {
      const row = this.#rows.find(({ node }) => keyOf(node.path) === keyOf(path.slice(0, end)));
      if (!row) continue;
      for (let box = row.line.parentElement.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
      row.control.inputs[0].focus();
      return true;
    }
    return false;
  }

  /** Show only the rows whose name or path contains a text. */
  filter(text) {
    const wanted = text.trim().toLowerCase();
    // Sections that a filter opens are closed again after it.
    if (wanted && !this.#opened) this.#opened = [...this.all.querySelectorAll("details[open]")];
    for (const row of this.#rows) {
      if (this.all.contains(row.line)) row.line.hidden = !`${keyOf(row.node.path)} ${row.title}`.toLowerCase().includes(wanted);
    }
    for (const group of this.#groups.toReversed()) group.filter(wanted);
    if (wanted || !this.#opened) return;
    for (const details of this.all.querySelectorAll("details")) details.open = this.#opened.includes(details);
    this.#opened = null;
  }

  /** Default of a node: that of this document if known, else that of the schema. */
  getDefault(node) {
    const wasSet = getIn(this.#filled.value, node.path) !== undefined;
    const filled = wasSet ? undefined : getIn(this.#filled.document, node.path);
    return filled === undefined ? node.default : filled;
  }

  #addRow(target, node, title = nameInWords(node.name)) {
    const id = `field-${this.#count++}`;
    const control = makeControl(node, id, (value) => this.onChange(node, value));
    const fault = element("p", { class: "fault", id: `${id}-fault` });
    fault.hidden = true;
    const label = element("label", { for: id }, title, ...(node.unit ? [" ", element("small", {}, node.unit)] : []));
    const line = element("div", { class: "field", "data-field": keyOf(node.path), "data-kind": node.kind }, label, control.element, fault);
    line.addEventListener("focusin", () => this.onFocus(node));
    target.append(line);
    const row = { node, title, control, line, fault };
    this.#rows.push(row);
    return row;
  }

  #showRow(row) {
    const value = getIn(this.#value, row.node.path);
    const standard = this.getDefault(row.node);
    if (row.isShown && isEqual(row.value, value) && isEqual(row.standard, standard)) return;
    Object.assign(row, { value, standard, isShown: true });
    row.control.showDefault(standard);
    row.control.show(value);
    row.line.toggleAttribute("data-set", value !== undefined);
    this.#showFault(row);
  }

  #showFault({ node, control, fault, line }) {
    const message = this.#faults.get(keyOf(node.path));
    fault.hidden = message === undefined;
    fault.textContent = message ?? "";
    line.toggleAttribute("data-invalid", message !== undefined);
    for (const input of control.inputs) {
      if (message === undefined) ["aria-invalid", "aria-describedby"].forEach((name) => input.removeAttribute(name));
      else Object.entries({ "aria-invalid": "true", "aria-describedby": fault.id }).forEach(([name, value]) => input.setAttribute(name, value));
    }
  }

  #addSection(node) {
    const count = element("small", { class: "count" });
    const details = element("details", { class: "group" }, element("summary", {}, nameInWords(node.name), " ", count));
    this.all.append(details);
    const paths = node.path[0] === "job" ? node.fields.map(({ path }) => path) : [node.path];
    const isBelow = (key) => paths.some((path) => key === keyOf(path) || key.startsWith(`${keyOf(path)}.`));
    const section = this.#addGroup(details, node, nameInWords(node.name));
    const rows = () => this.#rows.filter(({ line }) => details.contains(line));
    section.count = () => {
      const numSet = rows().filter(({ line }) => line.hasAttribute("data-set")).length;
      const numFaults = [...this.#faults.keys()].filter(isBelow).length;
      count.textContent = [numSet && `${numSet} set`, numFaults && `${numFaults} at fault`].filter(Boolean).join(", ");
      count.toggleAttribute("data-invalid", numFaults > 0);
    };
    const filter = section.filter;
    section.filter = (wanted) => {
      filter(wanted);
      details.hidden = wanted !== "" && rows().every(({ line }) => line.hidden);
      if (wanted) details.open = true;
    };
  }

  /** Add the rows of a group below a switch if it may be absent; return the group. */
  #addGroup(target, node, title) {
    const body = element("div", { class: "fields" });
    const group = { node, show: () => {}, filter: () => {} };
    this.#groups.push(group);
    if (node.isOptional) target.append(this.#makeSwitch(group, body, title));
    target.append(body);
    for (const field of node.fields) this.#addField(body, field);
    return group;
  }

  #addField(target, node) {
    if (node.kind === "group") this.#addSubgroup(target, node);
    else if (node.kind === "entries") this.#addEntries(target, node);
    else if (node.kind === "other") {
      const name = element("code", {}, keyOf(node.path));
      target.append(element("p", { class: "hint" }, `${nameInWords(node.name)}: set in the text, as `, name));
    } else this.#addRow(target, node);
  }

  #addSubgroup(target, node) {
    const title = nameInWords(node.name);
    const box = element("fieldset", { class: "subgroup" }, element("legend", {}, title));
    target.append(box);
    const group = this.#addGroup(box, node, title);
    const rows = () => this.#rows.filter(({ line }) => box.contains(line));
    group.filter = (wanted) => (box.hidden = wanted !== "" && rows().every(({ line }) => line.hidden));
    return box;
  }

  #makeSwitch(group, body, title) {
    const { node } = group;
    const id = `field-${this.#count++}`;
    const box = element("input", { type: "checkbox", role: "switch", id });
    const line = element("div", { class: "field switch", "data-field": keyOf(node.path) }, box, element("label", { for: id }, `Use ${title.toLowerCase()}`));
    let before;
    box.addEventListener("change", () => {
      if (!box.checked) before = getIn(this.#value, node.path);
      const on = before || (node.default === null ? {} : undefined);
      this.onChange(node, box.checked ? on : node.default === null ? undefined : false);
    });
    line.addEventListener("focusin", () => this.onFocus(node));
    group.show = () => {
      const value = getIn(this.#value, node.path);
      box.checked = value === undefined ? this.getDefault(node) !== null : Boolean(value);
      body.hidden = !box.checked;
    };
    return line;
  }

  /** Add a list of tables, whose entries come and go with the text. */
  #addEntries(target, node) {
    const list = element("div", { class: "entries" });
    const add = element("button", { type: "button", class: "quiet" }, `Add to ${nameInWords(node.name).toLowerCase()}`);
    const note = element("small");
    const box = element("fieldset", { class: "subgroup", "data-field": keyOf(node.path) }, element("legend", {}, nameInWords(node.name)), list, note, " ", add);
    box.addEventListener("focusin", (event) => event.target === add && this.onFocus(node));
    target.append(box);
    const getItems = () => [getIn(this.#value, node.path) ?? []].flat();
    add.addEventListener("click", () => this.onChange(node, [...getItems(), {}]));
    const show = () => {
      const length = getItems().length;
      note.textContent = length === 0 ? "none" : length > MAX_ENTRIES ? `${length} entries: set in the text` : "";
      add.hidden = length > MAX_ENTRIES;
      this.#resizeList(list, node, length > MAX_ENTRIES ? 0 : length, getItems);
    };
    this.#groups.push({ node, show, filter: (wanted) => (box.hidden = wanted !== "" && !keyOf(node.path).includes(wanted)) });
  }

  #resizeList(list, node, length, getItems) {
    while (list.children.length > length) {
      const last = list.lastElementChild;
      this.#rows = this.#rows.filter(({ line }) => !last.contains(line));
      this.#groups = this.#groups.filter((group) => !isEqual(group.node.path, [...node.path, list.children.length - 1]));
      last.remove();
    }
    while (list.children.length < length) {
      const index = list.children.length;
      const item = { ...node.makeItem(index), name: `${node.name} ${index + 1}`, isOptional: false };
      const box = this.#addSubgroup(list, item);
      const remove = element("button", { type: "button", class: "quiet", "aria-label": `Remove ${item.name.replaceAll("_", " ")}` }, "Remove");
      remove.addEventListener("click", () => this.onChange(node, getItems().filter((_, at) => at !== index)));
      box.append(remove);
    }
  }
}
