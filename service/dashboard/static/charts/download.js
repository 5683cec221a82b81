// Charts as files: the numbers that they show, and a picture.
import { isKnown } from "../common/format.js";
import { save, saveColumns } from "../common/files.js";

const PADDING = 16;
const TITLE_HEIGHT = 28;
const LEGEND_HEIGHT = 30;

/** Return the indices of the points that are seen. */
function listSeen({ shownRange: [start, end], data: [positions] }) {
  return [...positions.keys()].filter((index) => positions[index] >= start && positions[index] <= end);
}

/** Name a file of a chart, without its ending: with the part that is seen if it is not all. */
export function nameFile(name, chart) {
  const seen = listSeen(chart);
  if (!chart.range || !seen.length) return name;
  const [start, end] = [seen[0], seen.at(-1)].map((index) => Math.round(chart.data[0][index]));
  return `${name}-${chart.x.plural}-${start}-${end}`;
}

/** Save what a chart shows as CSV, with the names and units of its columns; those without a value are left out. */
export function saveChart(name, chart, { title, unit }) {
  const inUnit = unit ? ` (${unit})` : "";
  const banded = chart.lines.filter(({ hasBand }) => hasBand);
  const names = [...chart.lines, ...banded.flatMap(({ label }) => [{ label: `largest ${label}` }, { label: `smallest ${label}` }])]
    .map(({ label }) => (label.toLowerCase() === title.toLowerCase() ? `${title}${inUnit}` : `${title}: ${label}${inUnit}`));
  const seen = listSeen(chart);
  const columns = [chart.x.title, ...names].map((head, index) => [head, seen.map((point) => chart.data[index][point])]);
  const filled = columns.filter(([, values], index) => index === 0 || values.some(isKnown));
  saveColumns(name, filled.map(([head]) => head), filled.map(([, values]) => values));
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
