// Elements and numbers as people read them. Texts are only ever set as text.

export const byId = id => document.getElementById(id);

/** An element with attributes (`on…` are listeners, a false one is left out) and children. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child != null));
  return node;
}

/** The same for SVG. */
export function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const rate = value => (value == null ? "–" : value >= 100 ? value.toFixed(0) : value.toFixed(1));
export const percent = value => (value == null ? "–" : `${(100 * value).toFixed(1)}%`);
export const milliseconds = value => (value == null ? "–" : `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`);
export const failures = window => Object.values(window.failures).reduce((sum, count) => sum + count, 0);

/** A value in its unit, as the reports write it. */
export function quantity(value, unit) {
  if (value == null) return "–";
  const short = (number, decimals) => String(Number(number.toFixed(decimals)));
  if (unit === "ratio") return `${short(100 * value, 2)}%`;
  if (unit === "1/s") return `${short(value, 1)}/s`;
  if (unit === "x") return `${short(value, 3)}x`;
  if (unit === "count") return short(value, 2);
  if (unit === "windows" && value === 1) return "1 window";
  return `${short(value, 3)} ${unit}`;
}

export function seconds(value) {
  const whole = Math.max(0, Math.round(value));
  return whole < 90 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

export const time = text =>
  make("time", { datetime: text }, new Date(text).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" }));

export const badge = word => make("span", { class: `badge ${word}` }, word);

/** One row of an edge: what a window says of it. */
export function edgeCells(edge) {
  const window = edge.window;
  const number = text => make("td", { class: "number" }, text);
  return [
    make("th", { scope: "row" }, edge.name),
    make("td", {}, edge.role),
    number(rate(window?.qps)),
    number(edge.role === "downstream" ? percent(window?.retry_ratio) : "–"),
    number(window ? String(failures(window)) : "–"),
    number(milliseconds(window?.latency_ms.p50)),
    number(milliseconds(window?.latency_ms.p99)),
  ];
}

/** A small line of numbers, for eyes only: the number itself stands beside it. */
export function spark(values) {
  const svg = draw("svg", { class: "spark series0", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" });
  const known = values.filter(value => value != null);
  if (known.length > 1) {
    const top = Math.max(...known) || 1;
    const step = 100 / (values.length - 1);
    const points = values.map((value, at) => (value == null ? null : `${at * step},${19 - (18 * value) / top}`));
    svg.append(draw("polyline", { points: points.filter(Boolean).join(" ") }));
  }
  return svg;
}
