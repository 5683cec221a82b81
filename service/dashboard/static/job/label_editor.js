// Dialog in which the labels of a job are changed.
import { describeError, request } from "../common/api.js";
import { byId, element } from "../common/elements.js";

export class LabelEditor {
  /** path: of the job in the API. onSave: called with the changed job. */
  constructor(path, onSave) {
    this.path = path;
    this.onSave = onSave;
    this.dialog = byId("label-editor");
    this.rows = this.dialog.querySelector(".label-rows");
    this.fault = this.dialog.querySelector(".fault");
    this.before = {};
    this.dialog.querySelector("[data-do=add]").addEventListener("click", () => this.#add().focus());
    this.dialog.querySelector("[data-do=close]").addEventListener("click", () => this.dialog.close());
    this.dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save();
    });
  }

  /** Open the dialog with the present labels, by name. */
  open(labels) {
    this.before = labels;
    this.fault.hidden = true;
    this.rows.replaceChildren();
    Object.entries(labels).forEach(([name, value]) => this.#add(name, value));
    if (!this.rows.children.length) this.#add();
    this.dialog.showModal();
    this.rows.querySelector("input").focus();
  }

  /** Add a row, and return its first field. */
  #add(name = "", value = "") {
    const fields = [["name", name], ["value", value]].map(([label, text]) => {
      const field = element("input", { "aria-label": `${label} of a label`, placeholder: label, autocomplete: "off" });
      field.value = text;
      return field;
    });
    const remove = element("button", { class: "quiet", type: "button", "aria-label": "Remove this label" }, "×");
    const row = element("div", {}, ...fields, remove);
    remove.addEventListener("click", () => {
      row.remove();
      this.dialog.querySelector("[data-do=add]").focus();
    });
    this.rows.append(row);
    return fields[0];
  }

  async #save() {
    const labels = Object.fromEntries(Object.keys(this.before).map((name) => [name, null]));
    for (const row of this.rows.children) {
      const [name, value] = [...row.querySelectorAll("input")].map((field) => field.value.trim());
      if (name || value) labels[name] = value;
    }
    try {
      const job = await request("PATCH", this.path, { labels });
      this.dialog.close();
      this.onSave(job);
    } catch (error) {
      this.fault.textContent = describeError(error);
      this.fault.hidden = false;
    }
  }
}
