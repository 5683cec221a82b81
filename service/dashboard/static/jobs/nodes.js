// Lists of nodes that stay while their content changes, so that focus and selection stay too.

/** Make `nodes` the children of a node; those that are there already keep their place in the document. */
export function setChildren(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  nodes.forEach((node, place) => {
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
  });
}

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
