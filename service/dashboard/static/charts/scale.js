// A scale of colours that grows in lightness, so that it can be read without telling hues apart: viridis of matplotlib
// (by Stéfan van der Walt and Nathaniel Smith, CC0).

const STOPS = ["440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"];
const stops = STOPS.map((stop) => [0, 2, 4].map((start) => Number.parseInt(stop.slice(start, start + 2), 16)));

/** Colour [red, green, blue], each of 0 to 255, at a place between 0 and 1. */
export function findColour(place) {
  const position = Math.min(1, Math.max(0, place)) * (stops.length - 1);
  const below = Math.min(Math.floor(position), stops.length - 2);
  return stops[below].map((value, channel) => Math.round(value + (position - below) * (stops[below + 1][channel] - value)));
}

/** Logarithmic scale between two positive numbers, from 0 to 1; whole powers of ten within it are its ticks. */
export class LogScale {
  constructor(values) {
    const positive = values.filter((value) => value > 0);
    const [low, high] = positive.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, 0]);
    this.isKnown = positive.length > 0;
    this.low = this.isKnown ? 10 ** Math.floor(Math.log10(low)) : 1;
    this.high = this.isKnown ? Math.max(10 ** Math.ceil(Math.log10(high)), 10 * this.low) : 10;
  }

  /** Find the place of a number; null if it is unknown or not above 0. */
  find(value) {
    return value > 0 ? Math.log10(value / this.low) / Math.log10(this.high / this.low) : null;
  }

  /** List the powers of ten of the scale, at most about `most` of them. */
  listTicks(most = 7) {
    const [first, last] = [this.low, this.high].map((value) => Math.round(Math.log10(value)));
    const distance = Math.ceil((last - first) / most) || 1;
    return [...Array(Math.floor((last - first) / distance) + 1).keys()].map((number) => 10 ** (first + number * distance));
  }
}
