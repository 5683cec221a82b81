// Rows that are created once and refilled, so that focus, selection and scroll position stay.

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

  /** Show these items, in their order. */
  show(items) {
    const shown = items.map((item) => {
      const key = this.getKey(item);
      if (!this.parts.has(key)) this.parts.set(key, this.make(item));
      this.fill(this.parts.get(key), item);
      return this.parts.get(key).row;
    });
    const { children } = this.parent;
    const isSame = shown.length === children.length && shown.every((row, index) => row === children[index]);
    if (!isSame) this.parent.replaceChildren(...shown);
    const kept = new Set(items.map(this.getKey));
    for (const key of this.parts.keys()) if (!kept.has(key)) this.parts.delete(key);
  }
}
