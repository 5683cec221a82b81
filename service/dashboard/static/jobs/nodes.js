// Nodes that stay while their content changes, so that focus and selection stay too.

/** Nodes by keys, each made once. */
export class Nodes {
  constructor(make) {
    this.make = make;
    this.made = new Map();
  }

  get(key, ...rest) {
    if (!this.made.has(key)) this.made.set(key, this.make(key, ...rest));
    return this.made.get(key);
  }

  /** Forget the nodes of all other keys. */
  keep(keys) {
    const kept = new Set(keys);
    for (const key of this.made.keys()) if (!kept.has(key)) this.made.delete(key);
  }
}
