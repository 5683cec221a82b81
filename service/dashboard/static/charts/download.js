// Charts as files: the numbers that they show, and a picture.
import { save, saveColumns } from "../common/files.js";

const PADDING = 16;
const TITLE_HEIGHT = 28;
const LEGEND_HEIGHT = 30;

/** Save what a chart shows as CSV, with the names and units of its columns. */
export function saveChart(name, chart, { title, unit }) {
  const inUnit = unit ? ` (${unit})` : "";
  const banded = chart.lines.filter(({ hasBand }) => hasBand);
  const names = [...chart.lines, ...banded.flatMap(({ label }) => [{ label: `largest ${label}` }, { label: `smallest ${label}` }])]
    .map(({ label }) => (label.toLowerCase() === title.toLowerCase() ? `${title}${inUnit}` : `${title}: ${label}${inUnit}`));
  const [start, end] = chart.shownRange;
  const [positions] = chart.data;
  const isShown = (none, index) => positions[index] >= start && positions[index] <= end;
  saveColumns(name, [chart.x.title, ...names], chart.data.map((column) => column.filter(isShown)));
}

/** Draw a picture of a canvas below a title, with the entries of its legend: [{label, colour}], colours as CSS has them. */
export function drawPicture(canvas, title, entries, { text, background, font }) {
  const scale = devicePixelRatio;
  const picture = document.createElement("canvas");
  picture.width = canvas.width + 2 * PADDING * scale;
  picture.height = canvas.height + (TITLE_HEIGHT + LEGEND_HEIGHT + 2 * PADDING) * scale;
  const context = picture.getContext("2d");
  context.fillStyle = background;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(canvas, PADDING * scale, (PADDING + TITLE_HEIGHT) * scale);
  context.scale(scale, scale);
  context.textBaseline = "middle";
  context.fillStyle = text;
  context.font = `600 15px ${font}`;
  context.fillText(title, PADDING, PADDING + TITLE_HEIGHT / 3);
  context.font = `12px ${font}`;
  let left = PADDING;
  const middle = picture.height / scale - PADDING - LEGEND_HEIGHT / 2;
  for (const { label, colour } of entries) {
    context.fillStyle = colour;
    context.fillRect(left, middle - 5, 10, 10);
    context.fillStyle = text;
    context.fillText(label, left + 15, middle);
    left += 30 + context.measureText(label).width;
  }
  return picture;
}

/** Save a canvas as PNG. */
export const savePicture = (name, canvas) => canvas.toBlob((blob) => save(name, blob), "image/png");
