// Figures and settings in words: titles, units, meanings, values as text.
import { duration, figure, integer, isKnown, rate, samples, splitRank, UNKNOWN } from "../common/format.js";

/** Figures by name: title, what it says, how its values are written, and whether differences are written in percent. */
const FIGURES = {
  auc: { title: "AUC", meaning: "how well clicks rank above the rest: 0.5 is a guess, 1 perfect" },
  log_loss: { title: "Log-loss", meaning: "error of the predicted probabilities" },
  normalized_entropy: { title: "Normalized entropy", meaning: "log-loss as a share of the constant predictor's: below 1 is better than none" },
  calibration: { title: "Calibration", meaning: "predicted clicks by real ones" },
  grouped_auc: { title: "AUC within groups", meaning: "how well clicks rank above the rest of their group, such as a user" },
  validation_auc: { title: "AUC, validation rows", meaning: "on the rows that choose the best model" },
  validation_log_loss: { title: "Log-loss, validation rows", meaning: "on the rows that choose the best model" },
  samples_per_second: { title: "Samples/s", meaning: "speed of training", format: rate, isRelative: true },
  seconds: { title: "Duration", meaning: "from the first start to the end", format: duration, isRelative: true },
  train_auc: { title: "AUC, training rows", meaning: "far above the AUC, the model has learned by heart" },
  box_sharpness: { title: "Sharpness, box of 0.001", meaning: "how far the loss rises near the dense parameters, in percent" },
  small_box_sharpness: { title: "Sharpness, box of 0.0005", meaning: "the same, half as far" },
  hessian_eigenvalue: { title: "Largest eigenvalue", meaning: "of the Hessian of the loss, by the dense parameters" },
  train_auc_gap: { title: "Gap of AUC", meaning: "training rows less evaluation rows" },
  train_log_loss_gap: { title: "Gap of log-loss", meaning: "training rows less evaluation rows" },
  best_possible_auc: { title: "Best possible AUC", meaning: "of the hidden teacher of synthetic data" },
  noise_scale: { title: "Noise scale", meaning: "samples: batches beyond it save few steps", format: samples },
  num_samples: { title: "Samples", meaning: "consumed in training", format: integer },
  best_step: { title: "Best step", meaning: "step of the kept model", format: integer },
};

function describeRanked(name) {
  const ranked = splitRank(name);
  return ranked ? { title: `${ranked.word}@${ranked.rank}`, meaning: ranked.meaning } : {};
}

export const describeFigure = (name) => ({ title: name, meaning: "", format: figure, isRelative: false, ...FIGURES[name], ...describeRanked(name) });

/** Format a value of a setting or label; a field that a job lacks, or whose value is null, is "none". */
export function settingText(value) {
  if (!isKnown(value)) return "none";
  if (typeof value === "number") return Number.isInteger(value) && Math.abs(value) >= 1000 ? integer(value) : String(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Format a value of a column of results. */
export function valueText(column, value) {
  if (column.kind !== "figure") return settingText(value);
  return isKnown(value) ? describeFigure(column.name).format(value) : UNKNOWN;
}

/** Format a difference from the baseline: "+0.0034 ± 0.0020", or "+12 %" of its mean. */
export function differenceText(name, difference, baseMean) {
  const { isRelative } = describeFigure(name);
  const scale = isRelative ? 100 / baseMean : 1;
  const digits = (value) => {
    const size = Math.abs(value * scale);
    return isRelative ? `${size.toFixed(size < 10 ? 1 : 0)} %` : size.toFixed(4);
  };
  const sign = difference.mean < 0 ? "\u2212" : "+";
  const half = isKnown(difference.low) ? ` ± ${digits((difference.high - difference.low) / 2)}` : "";
  return sign + digits(difference.mean) + half;
}
