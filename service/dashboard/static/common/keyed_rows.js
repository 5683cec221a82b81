// Rows that are created once and refilled, so that focus, selection and scroll position stay.

/** Make `nodes` the children of a node; those that are there already keep their place in the document. */
export function setChildren(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  nodes.forEach((node, place) => {
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
  });
}

/** Keep the children of an element in step with a list of items.
 *
 * getKey: returns the key of an item. make: creates the parts of an item, of which `row` is its element. fill: writes an
 * item into its parts. */
export class KeyedRows {
  constructor(parent, { getKey, make, fill }) {
    this.parent = parent;
    this.getKey = getKey;
    this.make = make;
    this.fill = fill;
    this.parts = new Map();
  }

  /** Show these items, in their order. A row that stays in its place keeps the focus that is in it. */
  show(items) {
    const keys = new Set(items.map(this.getKey));
    for (const key of this.parts.keys()) if (!keys.has(key)) this.parts.delete(key);
    const rows = items.map((item) => {
      const key = this.getKey(item);
      if (!this.parts.has(key)) this.parts.set(key, this.make(item));
      const parts = this.parts.get(key);
      this.fill(parts, item);
      return parts.row;
    });
    setChildren(this.parent, rows);
  }
}
