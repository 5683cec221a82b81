// Layers of the dense part of a model, in words and in the order in which a sample passes them.

const KINDS = [
  [/^first_order$/, () => "first-order weights"],
  [/^bottom\.layers\.(\d+)$/, (number) => `bottom MLP, layer ${number + 1}`],
  [/^cross\.v\.(\d+)$/, (number) => `cross layer ${number + 1}, to low rank`],
  [/^cross\.u\.(\d+)$/, (number) => `cross layer ${number + 1}, from low rank`],
  [/^top\.layers\.(\d+)$/, (number) => `top MLP, layer ${number + 1}`],
];
/** Kinds whose layers alternate: each number has one of each. */
const CROSS = [2, 3];

function describe(name) {
  const kind = KINDS.findIndex(([pattern]) => pattern.test(name));
  if (kind < 0) return { name, words: name, place: [KINDS.length, 0, 0] };
  const number = Number(KINDS[kind][0].exec(name)[1] ?? 0);
  const place = CROSS.includes(kind) ? [CROSS[0], number, kind] : [kind, number, 0];
  return { name, words: KINDS[kind][1](number), place };
}

/** Describe layers by their names in reports, in the order of the network: [{name, words}]; others come last. */
export const listLayers = (names) =>
  names.map(describe).sort((one, other) => one.place.map((value, index) => value - other.place[index]).find(Boolean) ?? 0);
