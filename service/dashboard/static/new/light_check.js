// What is wrong with the document, found while one types: by the service, which makes no plan for it.
import { postToml } from "../common/api.js";

const PAUSE_MILLISECONDS = 600;
/** Answer that says nothing. */
export const NOTHING = { document: null, errors: [], fault: null, trouble: null };
const MALFORMED_LINE = /\(at line (\d+), column \d+\)/;

/** Check that follows a text: some time after its last change, never two at once, and only the last text counts. */
export class LightCheck {
  #timer = null;
  #wanted = null;
  #isRunning = false;

  /** onAnswer: called with {document, errors, fault, trouble}: the answer; a fault {line, message} of text that is no
   * TOML; a sentence if the service did not check the text. */
  constructor(onAnswer) {
    this.onAnswer = onAnswer;
  }

  /** Check a text once it has not changed for a while; one that the service need not see has its answer already. */
  follow(text, answer = null) {
    this.stop();
    this.#timer = setTimeout(() => {
      if (answer) {
        this.onAnswer(answer);
        return;
      }
      this.#wanted = text;
      this.#run();
    }, PAUSE_MILLISECONDS);
  }

  /** Check nothing until the next text. */
  stop() {
    this.#wanted = null;
    clearTimeout(this.#timer);
  }

  async #run() {
    if (this.#isRunning) return;
    this.#isRunning = true;
    while (this.#wanted !== null) {
      const text = this.#wanted;
      const answer = await checkText(text);
      if (this.#wanted !== text) continue;
      this.#wanted = null;
      this.onAnswer(answer);
    }
    this.#isRunning = false;
  }
}

async function checkText(text) {
  try {
    return { ...NOTHING, ...(await postToml("/v1/documents", text)) };
  } catch (error) {
    const fault = findMalformed(error);
    if (fault || error.errors.length) return { ...NOTHING, fault, errors: error.errors };
    return { ...NOTHING, trouble: `Not checked: ${error.message}.` };
  }
}

/** Find the line of text that is no TOML in a refusal of the service; null for other refusals. */
export function findMalformed({ message }) {
  const line = MALFORMED_LINE.exec(message);
  return line && { line: Number(line[1]), message };
}
