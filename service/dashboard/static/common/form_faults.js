// A form with a place for a fault below each field, and one at its head for what concerns none of them.
import { listFaults } from "./api.js";
import { byId } from "./elements.js";

export class FormFaults {
  /** form: its fields have ids, and each a place with this id and `-error`; that of the form has the class `trouble`. */
  constructor(form) {
    this.form = form;
    this.trouble = form.querySelector(".trouble");
  }

  clear() {
    this.trouble.hidden = true;
    for (const field of this.form.querySelectorAll("[aria-invalid]")) {
      field.removeAttribute("aria-invalid");
      byId(`${field.id}-error`).textContent = "";
    }
  }

  /** Show a fault at the field with this name; at the head if there is none. */
  show(name, message) {
    const field = this.form.elements.namedItem(name);
    if (field === null) {
      this.trouble.hidden = false;
      this.trouble.textContent = message;
      return;
    }
    field.setAttribute("aria-invalid", "true");
    byId(`${field.id}-error`).textContent = message;
    this.form.querySelector("[aria-invalid]").focus();
  }

  /** Show why a request has failed. renamed: names of fields by their names in the API, if they differ. */
  showError(error, renamed = {}) {
    for (const [name, message] of listFaults(error)) this.show(renamed[name] ?? name, message);
  }
}
