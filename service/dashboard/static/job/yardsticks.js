// Quality of a model beside simple models on the same rows, and what the figures say against it.
import { element } from "../common/elements.js";
import { capitalize, figure, integer, isKnown, UNKNOWN } from "../common/format.js";

/** Warnings about what the outcome measures: once it is there, its own ones take their place. */
const UNTIL_MEASURED = ["few_evaluation_rows", "learns_nothing"];

/** Format an AUC with its standard error, where that is known: 0.7812 ± 0.0021. */
const aucText = ({ auc, auc_standard_error: error }) =>
  isKnown(auc) && isKnown(error) ? `${figure(auc)} ± ${error.toFixed(4)}` : figure(auc);

/** Fill `list` with the warnings of a run that its author should act on, then those about its model; hide it without any. */
export function showWarnings(list, job, events) {
  const isMeasured = isKnown(job.metrics.auc_standard_error);
  const names = JSON.parse(list.dataset.banners).filter((name) => !(isMeasured && UNTIL_MEASURED.includes(name)));
  const messages = names.map((name) => events.findLast(name)?.message).filter(Boolean);
  const warnings = [...messages, ...job.warnings];
  list.hidden = warnings.length === 0;
  list.replaceChildren(...warnings.map((warning) => element("li", {}, capitalize(warning))));
}

/** Fill the table of `panel`, and show it where simple models were measured. */
export function showYardsticks(panel, job) {
  panel.hidden = job.yardsticks.length === 0;
  if (panel.hidden) return;
  const titles = JSON.parse(panel.dataset.titles);
  const { num_samples, samples_per_second, constant_log_loss, train_auc_gap, train_log_loss_gap } = job.metrics;
  const seconds = num_samples && samples_per_second ? num_samples / samples_per_second : null;
  panel.querySelector("tbody").replaceChildren(
    makeRow("this model", { ...job.metrics, seconds }),
    ...job.yardsticks.map((result) => makeRow(titles[result.name] ?? result.name, result)),
    makeRow("constant predictor", { log_loss: constant_log_loss }),
    ...(isKnown(train_log_loss_gap)
      ? [makeRow("training less evaluation rows", { auc: train_auc_gap, log_loss: train_log_loss_gap })]
      : []),
  );
}

function makeRow(title, result) {
  const seconds = isKnown(result.seconds) ? result.seconds.toFixed(1) : UNKNOWN;
  const values = [aucText(result), figure(result.log_loss), figure(result.calibration), seconds, integer(result.num_train_rows)];
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, title),
    ...values.map((value) => element("td", { class: "number" }, value)),
  );
}
