// A chart in its figure: a title, a menu that saves or enlarges it, and a sentence for those who do not see it.
import { element } from "../common/elements.js";
import { Chart, getColour } from "./chart.js";
import { drawPicture, nameFile, saveChart, savePicture } from "./download.js";

/** Make a menu of buttons: [[name, what it does], …]. It closes after a choice, by Escape, and where the focus leaves it. */
export function makeMenu(name, choices) {
  const opener = element("summary", { "aria-label": `Menu of ${name}`, title: "Save or enlarge" }, "⋯");
  const menu = element("details", { class: "menu" }, opener);
  const list = element("div", { class: "choices" });
  const close = () => {
    menu.open = false;
    opener.focus();
  };
  for (const [label, act] of choices) {
    const button = element("button", { type: "button" }, label);
    button.addEventListener("click", () => {
      act(button);
      close();
    });
    list.append(button);
  }
  menu.append(list);
  menu.addEventListener("keydown", (event) => event.key === "Escape" && close());
  menu.addEventListener("focusout", (event) => menu.contains(event.relatedTarget) || (menu.open = false));
  return menu;
}

/** Show a figure over the full width, or as before. */
function toggleWidth(figure, button) {
  const isEnlarged = figure.classList.toggle("enlarged");
  button.textContent = isEnlarged ? "Make it smaller" : "Enlarge";
}

/** The colours and the font of the page, for pictures. */
export const getPageColours = () => ({
  text: getColour("--text"),
  background: getColour("--card"),
  font: getComputedStyle(document.body).fontFamily,
});

export class ChartPanel {
  /** definition: of `CHARTS`, or {name, title, note, unit, format}. options: of the `Chart`. fileName: of what is saved,
   * without its ending and the part that is seen. The figure stays hidden until the first `show`. */
  constructor(definition, options, fileName) {
    const { name, title, note } = definition;
    this.definition = definition;
    this.options = { format: definition.format, ...options };
    const words = { "aria-label": `${title}: ${note}`, "aria-describedby": `${name}-summary` };
    this.target = element("div", { class: "chart", id: `${name}-chart`, ...words });
    this.summary = element("p", { class: "unseen", id: `${name}-summary` });
    const menu = makeMenu(title, [
      ["Save as CSV", () => saveChart(`${nameFile(fileName, this.chart)}.csv`, this.chart, definition)],
      ["Save as PNG", () => savePicture(`${nameFile(fileName, this.chart)}.png`, this.#draw())],
      ["Enlarge", (button) => this.#enlarge(button)],
    ]);
    const caption = element("figcaption", {}, element("span", {}, `${title} `, element("small", {}, note)), menu);
    this.figure = element("figure", { id: name, hidden: "" }, caption, this.target, this.summary);
    this.chart = null;
  }

  /** Draw lines with their data, as `Chart.show` takes it; nothing hides the figure. changes: of the chart. */
  show(drawn, end, marks, changes, sentence) {
    this.figure.hidden = drawn === null;
    if (drawn === null) return;
    const { lines, data } = drawn;
    this.chart ??= new Chart(this.target, lines, this.options);
    this.chart.change({ lines, ...changes });
    this.chart.show(data, end, marks);
    if (this.summary.textContent !== sentence) this.summary.textContent = sentence;
  }

  #enlarge(button) {
    toggleWidth(this.figure, button);
    this.chart.resize();
  }

  #draw() {
    const entries = this.chart.lines
      .filter(({ isUnlisted }) => !isUnlisted)
      .map(({ label, colour }) => ({ label, colour: getColour(colour) }));
    return drawPicture(this.chart.plot.ctx.canvas, this.definition.title, entries, getPageColours());
  }
}
