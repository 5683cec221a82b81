// Advice on the batch of a run: steps against samples, from its event `batch_advice`.
import { element } from "../common/elements.js";
import { integer, multiple } from "../common/format.js";

export const BATCH_ADVICE = "batch_advice";

/** Fill `figure`, which has a table and a hint, and show it; it stays hidden where the event has no table. */
export function showAdvice(figure, event) {
  const advice = event?.details;
  if (!advice?.table?.length) return;
  figure.hidden = false;
  figure.querySelector("tbody").replaceChildren(...advice.table.map((row) => makeRow(row, advice)));
  figure.querySelector(".hint").textContent = event.message;
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
