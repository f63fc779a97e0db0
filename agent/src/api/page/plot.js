// The chart of a running drill: one line an edge, a step a window, the fault phase shaded.

import { draw, make } from "./view.js";

const WIDTH = 400;
const HEIGHT = 110;
const LEFT = 38;
const BASE = 100;

/** A figure of windows; `value` takes an edge's number out of one, `label` writes a number. Each edge has its `color`, 0 to 5. */
export function plot(title, windows, edges, value, label) {
  const at = index => LEFT + ((WIDTH - LEFT) * index) / Math.max(1, windows.length - 1);
  const numbers = edges.map(edge => windows.map(window => value(window.edges.find(one => one.name === edge.name))));
  const top = Math.max(...numbers.flat().filter(number => number != null), 0);
  const svg = draw("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const latest = edges.map((edge, index) => `${edge.name} ${label(numbers[index].at(-1))}`).join(", ");
  svg.append(draw("title", {}, `${title}: ${latest}`));
  const fault = windows.map((window, index) => (window.phase === "fault" ? index : -1)).filter(index => index >= 0);
  if (fault.length) {
    const [from, to] = [at(Math.max(0, fault[0] - 0.5)), at(Math.min(windows.length - 1, fault.at(-1) + 0.5))];
    svg.append(draw("rect", { class: "shade", x: from, y: 4, width: Math.max(2, to - from), height: BASE - 4 }));
  }
  svg.append(draw("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: BASE, y2: BASE }));
  svg.append(draw("text", { x: 0, y: 14 }, label(top)), draw("text", { x: 0, y: BASE }, "0"));
  numbers.forEach((line, which) => {
    const points = line.map((number, step) => (number == null ? null : `${at(step)},${BASE - ((BASE - 8) * number) / (top || 1)}`));
    const shape = draw("polyline", { points: points.filter(Boolean).join(" ") });
    shape.setAttribute("class", `series${edges[which].color}`);
    svg.append(shape);
  });
  const legend = edges.map(edge => make("span", { class: `series${edge.color}` }, edge.name));
  return make("figure", {}, make("figcaption", {}, make("b", {}, title), ...legend), svg);
}
