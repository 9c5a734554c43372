// Elements and words. Text is always set as text: nothing of the user's is ever read as HTML.

/** An element; `attributes` are set as they are, but for `on`: handlers by event. Children are nodes or text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  assign(made, attributes);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** The same for SVG. */
function drawing(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  assign(made, attributes);
  made.append(...children);
  return made;
}

function assign(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
}

const byId = (id) => document.getElementById(id);

function readable(number, units, step, digits = 3) {
  let unit = 0;
  while (Math.abs(number) >= step && unit < units.length - 1) [number, unit] = [number / step, unit + 1];
  const text = unit === 0 && Number.isInteger(number) ? String(number) : number.toPrecision(digits);
  return `${text.includes("e") ? Math.round(number) : text}\u2009${units[unit]}`;
}

const readableBytes = (bytes) => readable(bytes, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const readableFlops = (flops) => readable(flops, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000);
const readableSeconds = (seconds) => readable(seconds * 1e6, ["µs", "ms", "s"], 1000);
const readableCount = (count) => count.toLocaleString("en-US");
const plural = (count, word) => `${readableCount(count)} ${word}${count === 1 ? "" : "s"}`;
