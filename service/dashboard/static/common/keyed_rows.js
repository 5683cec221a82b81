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

  /** Show these items, in their order. A row that stays in its place keeps the focus that is in it. */
  show(items) {
    const keys = new Set(items.map(this.getKey));
    for (const [key, { row }] of this.parts) {
      if (keys.has(key)) continue;
      row.remove();
      this.parts.delete(key);
    }
    items.forEach((item, index) => {
      const key = this.getKey(item);
      if (!this.parts.has(key)) this.parts.set(key, this.make(item));
      const parts = this.parts.get(key);
      this.fill(parts, item);
      const present = this.parent.children[index] ?? null;
      if (present !== parts.row) this.parent.insertBefore(parts.row, present);
    });
  }
}
