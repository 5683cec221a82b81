// The curves of a job that its page shows: of the whole run or of each attempt, and finer ones of the part that is seen.
import { isKnown } from "../common/format.js";
import { Curves } from "./curves.js";
import { listNames } from "./list.js";
import { POSITION_NAMES, Positions } from "./positions.js";

/** Attempts that are drawn at most: the last ones. */
const MAX_ATTEMPTS = 8;
const NAMES = {
  training: [...listNames("training"), ...POSITION_NAMES, "num_run_samples"],
  evaluation: [...listNames("evaluation"), "time"],
};
const KINDS = Object.keys(NAMES);

/** Curves of both kinds of one attempt, or the valid ones of all, and those of the part that is seen. */
export class Source {
  /** path: of the job in the API. attempt: its number, or null. names: of the curves, by kind. */
  constructor(path, attempt, names = NAMES) {
    this.path = path;
    this.names = names;
    this.attempt = attempt;
    this.whole = this.#make(null);
    this.part = null;
    this.partName = "";
    /** Last step of the part. */
    this.until = 0;
    this.isComplete = false;
  }

  #make(range) {
    return Object.fromEntries(KINDS.map((kind) => [kind, new Curves(this.path, kind, this.names[kind], { attempt: this.attempt, range })]));
  }

  async update() {
    if (this.isComplete) return;
    const { steps } = this.whole.training.points;
    await Promise.all(KINDS.map((kind) => this.whole[kind].update()));
    if ((steps.at(-1) ?? 0) <= this.until) this.partName = "";
  }

  /** Read the part [start, end] along the chart, where the whole is coarse; `null` forgets it. */
  async updatePart(zoom, x, origin) {
    const name = JSON.stringify([zoom, x.name]);
    if (name === this.partName) return;
    if (this.zoom !== zoom) this.part = null;
    this.zoom = zoom;
    const coarse = zoom ? KINDS.filter((kind) => this.whole[kind].isCoarse) : [];
    if (coarse.length) {
      const positions = new Positions(this.whole.training, x, origin);
      const [since, until] = zoom.map((position) => positions.findStep(position));
      const part = this.#make([Math.max(0, Math.floor(since) - 1), Math.max(1, Math.ceil(until))]);
      this.until = until;
      await Promise.all(coarse.map((kind) => part[kind].update()));
      // Another part may have been chosen meanwhile.
      if (this.zoom !== zoom) return;
      this.part = Object.fromEntries(KINDS.map((kind) => [kind, coarse.includes(kind) ? part[kind] : this.whole[kind]]));
    }
    this.partName = name;
  }

  /** The curves of one kind, as fine as they are. */
  get(kind) {
    return (this.part ?? this.whole)[kind];
  }

  /** Positions along the chart of the points of one kind. */
  locate(kind, x, origin) {
    return new Positions(this.whole.training, x, origin).locate(this.get(kind));
  }

  /** Find the last position along the chart that is known. */
  findEnd(x, origin) {
    const positions = new Positions(this.whole.training, x, origin);
    return Math.max(...KINDS.map((kind) => positions.locate(this.whole[kind]).findLast(isKnown) ?? 0));
  }
}

export class CurveData {
  /** path: of the job in the API. */
  constructor(path) {
    this.path = path;
    this.valid = new Source(path, null);
    this.attempts = [];
  }

  /** Read what is new, of each attempt too if they are shown one by one, and the part that is seen. */
  async update({ areEach, zoom, x }, origin) {
    await this.valid.update();
    const numbers = areEach ? this.starts.slice(-MAX_ATTEMPTS).map(({ attempt }) => attempt) : [];
    this.attempts = numbers.map((number) => this.attempts.find(({ attempt }) => attempt === number) ?? new Source(this.path, number));
    await Promise.all(this.attempts.map((source) => source.update()));
    // Nothing comes after the start of a later attempt.
    this.attempts.forEach((source) => (source.isComplete = source.attempt < numbers.at(-1)));
    await this.readPart({ areEach, zoom, x }, origin);
  }

  /** Read the part that is seen, if it is not known yet. */
  async readPart({ areEach, zoom, x }, origin) {
    const shown = areEach ? this.attempts : [this.valid];
    await Promise.all(shown.map((source) => source.updatePart(zoom, x, origin)));
  }

  get starts() {
    return this.valid.whole.training.starts;
  }

  /** Return the last step of an attempt that is not void. */
  findLastValidStep(attempt, kind) {
    const later = this.starts.filter((start) => start.attempt > attempt);
    return Math.min(Infinity, ...later.map((start) => (kind === "training" ? start.step : start.evaluated_step)));
  }

  /** Names of the curves of evaluations that there are. */
  get evaluationNames() {
    return Object.keys(this.valid.whole.evaluation.points.curves);
  }

  get hasValues() {
    return KINDS.some((kind) => this.valid.whole[kind].points.steps.length > 0);
  }
}
