// What a run has learned about its batch: steps against samples, as told in its event `batch_advice`.
import { element, integer, multiple } from "./format.js";

export const BATCH_ADVICE = "batch_advice";

/** Fill `figure`, a hidden one with a table and a note in it; it stays hidden without an event that has a table. */
export function showAdvice(figure, event) {
  const advice = event?.details;
  if (!advice?.table?.length) return;
  figure.hidden = false;
  figure.querySelector("tbody").replaceChildren(...advice.table.map((row) => tableRow(row, advice)));
  figure.querySelector(".hint").textContent = event.message;
}

function tableRow(row, advice) {
  const notes = [[advice.batch, "this run"], [advice.largest_useful_batch, "largest useful"]];
  const said = notes.filter(([batch]) => batch === row.batch).map(([, words]) => words);
  const multiples = [row.steps, row.samples, row.steps_of_fewest, row.samples_of_fewest];
  return element(
    "tr",
    {},
    element("th", { scope: "row", class: "number" }, integer(row.batch)),
    ...multiples.map((value) => element("td", { class: "number" }, multiple(value))),
    element("td", {}, said.join(", ")),
  );
}
