// Elements and numbers. Text becomes text nodes: nothing of a run is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";
const drawn = new Set(["svg", "path", "line", "circle", "rect", "text", "g"]);

// h makes an element: h("a", {href: "#x", onclick: f, class: "y"}, "text", child, …). Attributes that are null, false
// or undefined are left out; arrays of children are joined.
export function h(name, attributes, ...children) {
  const element = drawn.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// number writes four digits of a number as people read it.
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

// table lays out rows of objects; columns are {key, head, show(row) → node or text, text: aligned to the left}.
export function table(rows, columns, attributes) {
  const side = (c) => (c.text ? "text" : null);
  return h("div", { class: "scroll" }, h("table", attributes,
    h("thead", null, h("tr", null, columns.map((c) =>
      h("th", { class: side(c), onclick: c.sort, "aria-sort": c.sorted || null },
        c.sort ? h("button", { class: "plain" }, c.head ?? c.key) : c.head ?? c.key)))),
    h("tbody", null, rows.map((row) => h("tr", null, columns.map((c) =>
      h("td", { class: side(c) }, c.show ? c.show(row) : String(row[c.key] ?? "–"))))))));
}

// plain is a table of whatever keys the rows have.
export function plain(rows) {
  if (!rows.length) return h("p", { class: "soft" }, "No difference.");
  return table(rows, Object.keys(rows[0]).map((key) => ({ key, text: rows.some((r) => typeof r[key] === "string"),
    show: (row) => (typeof row[key] === "number" ? number(row[key]) : String(row[key] ?? "–")) })));
}

export const field = (label, control) => h("label", { class: "field" }, h("span", null, label), control);

export function choice(options, value, onchange) {
  return h("select", { onchange: (event) => onchange(event.target.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
}
