// The line of a job document that names its preset. It is the only place of the choice, so that the form and the text
// always say the same.

const LINE = /^[ \t]*(?:preset|"preset"|'preset')[ \t]*=[ \t]*(?:"([^"]*)"|'([^']*)'|.*)/;
const TABLE = /^[ \t]*\[/;

/** Find the line above all tables, as {start, end, name}; name is null where it is no text. Null without such a line. */
function findLine(text) {
  let start = 0;
  for (const line of text.split("\n")) {
    if (TABLE.test(line)) return null;
    const found = LINE.exec(line);
    if (found) return { start, end: start + line.length, name: found[1] ?? found[2] ?? null };
    start += line.length + 1;
  }
  return null;
}

/** Return the preset that a document names: empty without one, null where it is no text. */
export function getPreset(text) {
  const line = findLine(text);
  return line ? line.name || null : "";
}

/** Return the document with this preset in its line, on top where it had none; with an empty name without the line. */
export function setPreset(text, name) {
  const { start, end } = findLine(text) ?? { start: 0, end: -1 };
  return text.slice(0, start) + (name ? `preset = "${name}"\n` : "") + text.slice(end + 1);
}
