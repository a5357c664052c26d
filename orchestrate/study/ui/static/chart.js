// Curves over steps, with the values under the pointer.
import { h, number } from "./dom.js";

const width = 420, height = 170, left = 48, right = 10, top = 8, bottom = 22;

const round = (v) => v.toFixed(1);

// ticks are about n round numbers of a range.
function ticks(low, high, n) {
  const raw = (high - low) / n, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * size).find((s) => s >= raw);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step / 1e6; v += step) out.push(Number(v.toPrecision(12)));
  return out;
}

// chart draws curves {label, steps, values, hue, dash, low, high}, a band between low and high; open(step) is called where somebody clicks.
export function chart(title, curves, open) {
  const xs = curves.flatMap((c) => c.steps), ys = curves.flatMap((c) => [...c.values, ...(c.low || []), ...(c.high || [])]);
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity]; // Math.min takes no hundred thousand arguments
  for (const x of xs) [x0, x1] = [Math.min(x0, x), Math.max(x1, x)];
  for (const y of ys) [y0, y1] = [Math.min(y0, y), Math.max(y1, y)];
  if (x0 === x1) x1 = x0 + 1;
  const pad = (y1 - y0) * 0.06 || Math.abs(y0) * 0.1 || 1;
  [y0, y1] = [y0 - pad, y1 + pad];
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const py = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const svg = h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    ticks(y0, y1, 4).map((y) => [h("line", { x1: left, x2: width - right, y1: py(y), y2: py(y), class: "grid" }),
      h("text", { x: left - 5, y: py(y) + 4, "text-anchor": "end" }, number(y, 3))]),
    ticks(x0, x1, 5).filter(Number.isInteger).map((x) =>
      h("text", { x: px(x), y: height - 6, "text-anchor": "middle" }, String(x))),
    curves.filter((c) => c.low).map((c) => h("path", { class: `band hue${c.hue % 8}`,
      d: [...c.steps.map((x, i) => [x, c.high[i]]), ...c.steps.map((x, i) => [x, c.low[i]]).reverse()]
        .map(([x, y], i) => `${i ? "L" : "M"}${round(px(x))} ${round(py(y))}`).join("") + "Z" })),
    curves.map((c) => [
      h("path", { d: c.steps.map((x, i) => `${i ? "L" : "M"}${round(px(x))} ${round(py(c.values[i]))}`).join(""),
        class: `curve hue${c.hue % 8}${c.dash ? " dash" : ""}` }),
      c.steps.length < 12 ? c.steps.map((x, i) =>
        h("circle", { cx: px(x), cy: py(c.values[i]), r: 2.5, class: `dot hue${c.hue % 8}` })) : null]));
  const mark = h("line", { y1: top, y2: height - bottom, class: "mark", visibility: "hidden" });
  svg.append(mark);
  const legend = h("figcaption", null);
  const tell = (step) => legend.replaceChildren(h("b", null, title), step === null ? "" : ` · step ${step}`,
    h("span", { class: "legend" }, curves.map((c) => {
      const at = step === null ? c.steps.length - 1 : nearest(c.steps, step);
      return h("span", { class: `key hue${c.hue % 8}` }, `${c.label} ${number(c.values[at])}`);
    })));
  const stepAt = (event) => {
    const box = svg.getBoundingClientRect();
    const x = x0 + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (x1 - x0);
    return xs[nearest(xs, x)];
  };
  svg.addEventListener("pointermove", (event) => {
    const step = stepAt(event);
    for (const side of ["x1", "x2"]) mark.setAttribute(side, px(step));
    mark.setAttribute("visibility", "visible");
    tell(step);
  });
  svg.addEventListener("pointerleave", () => { mark.setAttribute("visibility", "hidden"); tell(null); });
  if (open) svg.addEventListener("click", (event) => open(stepAt(event)));
  tell(null);
  return h("figure", { class: open ? "chart open" : "chart" }, legend, svg);
}

function nearest(steps, x) {
  let best = 0;
  for (let i = 1; i < steps.length; i++) if (Math.abs(steps[i] - x) < Math.abs(steps[best] - x)) best = i;
  return best;
}

// strip draws the scores of a group as dots between the lowest and the highest of all.
export function strip(scores, low, high) {
  const at = (v) => 6 + ((v - low) / (high - low || 1)) * 148;
  const label = `scores of ${scores.length} episodes`;
  return h("svg", { viewBox: "0 0 160 16", class: "strip", role: "img", "aria-label": label },
    h("line", { x1: 6, x2: 154, y1: 8, y2: 8, class: "grid" }),
    scores.map(([score, solved]) =>
      h("circle", { cx: at(score), cy: 8, r: 4, class: solved ? "solved" : "unsolved" })));
}
