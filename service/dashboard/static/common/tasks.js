// Figures of the tasks of a model after the first, whose names are those of the task and the figure: "buy.auc".

/** What figures are called, what they say, and which value is the best one. */
const FIGURES = {
  auc: { title: "AUC", meaning: "0.5 is a guess, 1 is perfect", best: "highest" },
  log_loss: { title: "Log-loss", meaning: "lower is better", best: "lowest" },
  calibration: { title: "Calibration", meaning: "1 is right", best: "nearest to 1" },
  rmse: { title: "Root mean squared error", meaning: "lower is better", best: "lowest" },
  mae: { title: "Mean absolute error", meaning: "lower is better", best: "lowest" },
};

/** List the figures of tasks among `names`, in their order: [{name, task, figure, title, meaning, best}, …]. */
export const listOfTasks = (names) =>
  names.flatMap((name) => {
    const [, task, figure] = /^([A-Za-z][\w-]*)\.([a-z_]+)$/.exec(name) ?? [];
    return Object.hasOwn(FIGURES, figure ?? "") ? [{ name, task, figure, ...FIGURES[figure] }] : [];
  });
