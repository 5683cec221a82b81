// Advice on the batch of a run: steps against samples, from its event `batch_advice`.
import { element } from "../common/elements.js";
import { capitalize, integer, isKnown, multiple, samples } from "../common/format.js";

export const BATCH_ADVICE = "batch_advice";

/** Fill `figure`, which has a table, and show it; it stays hidden where the event has no table. */
export function showAdvice(figure, event) {
  const advice = event?.details;
  if (!advice?.table?.length) return;
  figure.hidden = false;
  figure.querySelector("tbody").replaceChildren(...advice.table.map((row) => makeRow(row, advice)));
}

/** Advise on the batch in a sentence: what the run has found at its end, or where it stands; empty if nothing is known. */
export function writeAdvice(event, noiseScale, batch) {
  if (event?.message) return `${capitalize(event.message)}.`;
  if (!isKnown(noiseScale) || !batch) return "";
  const [ratio, words] = noiseScale > batch ? [noiseScale / batch, "times"] : [batch / noiseScale, "times smaller than"];
  const times = Number(ratio.toPrecision(2));
  const found = `So far the noise scale is ${samples(noiseScale)} samples, ${times} ${words} the batch of ${integer(batch)}`;
  if (noiseScale > batch) return `${found}: a larger batch needs fewer steps, for few more samples.`;
  return `${found}: a larger batch hardly needs fewer steps, and a smaller one needs fewer samples.`;
}

function makeRow(row, advice) {
  const own = advice.first_batch ? "this run's last" : "this run";
  const notes = [
    [advice.first_batch, "this run's first"],
    [advice.batch, own],
    [advice.largest_useful_batch, "largest useful"],
  ];
  const notesOfRow = notes.filter(([batch]) => batch === row.batch).map(([, words]) => words);
  const multiples = [row.steps, row.samples, row.steps_of_fewest, row.samples_of_fewest];
  return element(
    "tr",
    {},
    element("th", { scope: "row", class: "number" }, integer(row.batch)),
    ...multiples.map((value) => element("td", { class: "number" }, multiple(value))),
    element("td", {}, notesOfRow.join(", ")),
  );
}
