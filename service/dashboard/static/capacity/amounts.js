// Cores, memory and GPUs as texts and bars.
import { element } from "../common/elements.js";
import { bytes, count, integer } from "../common/format.js";

/** Class of the cells of a resource: those of GPUs are hidden where no machine has any. */
export const cellClass = ({ name }) => (name === "num_gpus" ? "number gpu" : "number");

/** Resources of machines: name of the field, title, and functions that format amounts with and without their unit. */
export const RESOURCES = [
  { name: "num_cores", title: "Cores", format: (value) => count(value, "core"), number: integer },
  { name: "memory_bytes", title: "Memory", format: bytes, number: (value) => (value / 2 ** 30).toFixed(1), unit: "GiB" },
  { name: "num_gpus", title: "GPUs", format: (value) => count(value, "GPU"), number: integer },
];

/** Format what jobs hold: 4 cores, 8.0 GiB, 1 GPU; GPUs only if there are any. */
export const formatAmounts = (held) =>
  RESOURCES.filter(({ name }) => name !== "num_gpus" || held[name]).map(({ name, format }) => format(held[name])).join(", ");

/** Create a bar of how much is in use, with words above it; `fill` fills it. */
export function makeBar(title) {
  const parts = { words: element("span"), free: element("small"), bar: element("progress", { "aria-label": `${title} in use` }) };
  parts.row = element("div", { class: "use" }, element("span", { class: "use-title" }, title), parts.words, parts.free, parts.bar);
  return parts;
}

/** Fill a bar: `used` of `total` of a resource. */
export function fillBar(parts, { format, number }, used, total) {
  parts.words.textContent = `${number(used)} of ${format(total)} in use`;
  parts.free.textContent = `${format(Math.max(0, total - used))} free`;
  parts.bar.max = Math.max(total, 1);
  parts.bar.value = Math.min(used, total);
  parts.bar.toggleAttribute("data-full", total > 0 && used >= total);
}
