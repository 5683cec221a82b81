// A heat map as files: its numbers, and a picture.
import { saveColumns } from "../common/files.js";
import { drawPicture, savePicture } from "./download.js";
import { getPageColours } from "./panel.js";
import { findColour } from "./scale.js";

/** Make the choices of the menu of a heat map. */
export const makeChoicesOfMap = (map, title, fileName) => [
  ["Save as CSV", () => saveMap(`${fileName}.csv`, map, title)],
  ["Save as PNG", () => savePicture(`${fileName}.png`, drawMap(map, title))],
];

const saveMap = (name, { rows, steps }, title) =>
  saveColumns(name, ["step", ...rows.map(({ name }) => `${title}: ${name}`)], [steps, ...rows.map(({ values }) => values)]);

/** Draw a heat map with the names of its rows, below its title and above the ticks of its scale. */
function drawMap(map, title) {
  const colours = getPageColours();
  const names = document.createElement("canvas");
  const context = names.getContext("2d");
  const font = `${Math.min(12, map.rowHeight - 3) * devicePixelRatio}px ${colours.font}`;
  context.font = font;
  const room = Math.max(...map.rows.map(({ name }) => context.measureText(name).width)) + 12 * devicePixelRatio;
  Object.assign(names, { width: room + map.canvas.width, height: map.canvas.height });
  Object.assign(context, { font, fillStyle: colours.text, textBaseline: "middle" });
  map.rows.forEach(({ name }, row) => context.fillText(name, 0, (row + 0.5) * map.rowHeight * devicePixelRatio));
  context.drawImage(map.canvas, room, 0);
  const entries = map.scale.listTicks().map((tick) => {
    return { label: tick.toExponential(0), colour: `rgb(${findColour(map.scale.find(tick)).join(" ")})` };
  });
  return drawPicture(names, title, entries, colours);
}
