// The fields of a job document, as its JSON schema has them.

/** Fields that a service writes for later readers, and nobody sets. */
const WRITTEN = new Set(["filled_by_preset", "present"]);
const UNITS = [
  [/(global_size|chunk_size|start_size|base_batch|noise_scale)$/, "samples"],
  [/num_.*rows$/, "rows"],
  [/epochs$/, "passes over the rows"],
  [/workers_per_node$/, "ranks"],
  [/threads_per_worker$/, "cores"],
  [/(nodes|min|max)$/, "machines"],
  [/bandwidth$/, "bytes a second"],
  [/flops$/, "operations a second"],
  [/_fraction$/, "a share, 1 is all"],
];
const SIZES = [["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40], ["GB", 1e9], ["bytes", 1]];
const DURATIONS = [["s", 1], ["min", 60], ["h", 3600], ["days", 86400]];

/**
 * Make the node of a whole document. A node is {kind, path, name, description, unit, default, isOptional, …}; that of a
 * group has `fields`, of a choice `words`, of a number its bounds, of a list of tables `makeItem(index)`, and of a field
 * with several kinds of values `words` and `options`.
 */
export function readSchema(schema) {
  const resolve = (part) => (part.$ref ? { ...schema.$defs[part.$ref.split("/").at(-1)], ...part } : part);

  function makeNode(path, part, above) {
    const definition = resolve(part);
    const alternatives = (definition.anyOf ?? definition.oneOf ?? [definition]).map(resolve);
    const kinds = alternatives.filter(({ type }) => type !== "null");
    const words = kinds.flatMap((kind) => kind.enum ?? ("const" in kind ? [kind.const] : []));
    const others = kinds.filter((kind) => !kind.enum && !("const" in kind));
    const common = {
      path,
      name: path.at(-1),
      // That of the field, else that of the table in its place.
      description: (part.description ?? definition.description ?? others[0]?.description ?? "").replaceAll("\n", " "),
      unit: UNITS.find(([pattern]) => pattern.test(String(path.at(-1))))?.[1] ?? "",
      default: above !== undefined ? above : definition.default,
      isOptional: kinds.length < alternatives.length,
      // An empty table may say that something is on.
      isTable: others.length === 1 && Boolean(others[0].properties),
    };
    if (others.length === 0) return { ...common, kind: "choice", words };
    if (common.isOptional && others[0].type === "boolean") return { ...common, kind: "choice", words: [true, false] };
    const options = others.map((other) => ({ ...common, ...makeKind(path, other, common.default) }));
    if (words.length === 0 && options.length === 1) return options[0];
    return { ...common, kind: "union", words, options };
  }

  function makeKind(path, definition, above) {
    const { type } = definition;
    if (definition.properties) {
      const names = Object.keys(definition.properties).filter((name) => !WRITTEN.has(name));
      const required = new Set(definition.required);
      const makeField = (name) => ({
        ...makeNode([...path, name], definition.properties[name], above?.[name]),
        isRequired: required.has(name),
      });
      return { kind: "group", fields: names.map(makeField) };
    }
    if (type === "object") return { kind: definition.patternProperties ? "pairs" : "other" };
    if (type === "array") return makeList(path, resolve(definition.items));
    if (type === "integer" || type === "number") return makeNumber(path, definition);
    return { kind: type === "boolean" ? "flag" : "text", maxLength: definition.maxLength };
  }

  function makeList(path, item) {
    if (item.properties) return { kind: "entries", makeItem: (index) => makeNode([...path, index], item) };
    return { kind: item.type === "string" ? "texts" : "numbers" };
  }

  return makeNode([], schema);
}

/** Find the node of a path, or of the innermost field around it; null for the whole document. */
export function findNode(root, path) {
  let node = root;
  for (const part of path) {
    const lists = [node, ...(node.options ?? [])];
    const group = lists.find(({ fields }) => fields);
    const entries = lists.find(({ makeItem }) => makeItem);
    const inner = group?.fields.find(({ name }) => name === part) ?? (entries && entries.makeItem(part));
    if (!inner) break;
    node = inner;
  }
  return node === root ? null : node;
}

function makeNumber(path, definition) {
  const min = definition.minimum ?? definition.exclusiveMinimum ?? definition.ge;
  const max = definition.maximum ?? definition.exclusiveMaximum ?? definition.le;
  const bounds = [
    min !== undefined && (definition.exclusiveMinimum === min ? `above ${formatNumber(min)}` : `from ${formatNumber(min)}`),
    max !== undefined && (definition.exclusiveMaximum === max ? `below ${formatNumber(max)}` : `to ${formatNumber(max)}`),
  ].filter(Boolean);
  const isWhole = definition.type === "integer";
  // Sizes of memory may be written with a unit; their bounds are not of JSON schema.
  if (definition.ge !== undefined) {
    return { kind: "quantity", units: SIZES, isText: true, unit: "", bounds: `at least ${formatQuantity(min, SIZES)}` };
  }
  if (/_seconds$/.test(path.at(-1))) {
    return { kind: "quantity", units: DURATIONS, unit: "", bounds: `${bounds.join(" ")} seconds` };
  }
  return { kind: "number", isWhole, bounds: bounds.join(" ") };
}

const formatNumber = (value) =>
  Math.abs(value) >= 1e15 || (value && Math.abs(value) < 1e-4) ? value.toExponential() : value.toLocaleString("en", { maximumFractionDigits: 10 });

/** Split a quantity into a number and the largest unit in which it is a short one. */
export function splitQuantity(value, units) {
  const fits = units.filter(([, factor]) => value % factor === 0);
  const [unit, factor] = fits.reduce((best, one) => (one[1] > best[1] ? one : best), units.find(([, factor]) => factor === 1));
  return [value / factor, unit];
}

const formatQuantity = (value, units) => splitQuantity(value, units).join(" ");

/** Format the value of a node as the help and the placeholders show it. */
export function formatValue(node, value) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "number") {
    const quantity = [node, ...(node.options ?? [])].find(({ kind }) => kind === "quantity");
    return quantity ? formatQuantity(value, quantity.units) : formatNumber(value);
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.some((item) => typeof item === "object") ? `${value.length} entries` : value.join(", ");
  if (typeof value === "object") return Object.keys(value).length ? "a table" : "none";
  return String(value);
}

const ABBREVIATIONS = { mlp: "MLP", dtype: "format", auc: "AUC", gpus: "GPUs", gpu: "GPU", cuda: "CUDA", num: "number of", uri: "URI", eps: "epsilon" };

/** Put the name of a field into words. */
export function nameInWords(name) {
  const words = String(name).split("_").map((word) => ABBREVIATIONS[word] ?? word).join(" ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
