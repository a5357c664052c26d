// The lists: runs, and the tables of a study.
import { ask, go, link } from "./address.js";
import { bytes, duration, h, number, percent, table } from "./dom.js";

const moods = { done: "good", running: "live", failed: "bad", unreadable: "bad", stopped_early: "bad" };

// state is how a run is, in a word; why, under the pointer.
export const state = (run) => h("span", { class: `pill ${moods[run.state] || ""}`, title: run.reason },
  run.state.replaceAll("_", " ") || "unknown");

// runColumns are what the list says of a run.
const runColumns = [
  { key: "run", text: true, show: (r) => h("a", { href: link("run", { run: r.run }) }, r.run) },
  { key: "state", text: true, show: state },
  { key: "step", show: (r) => (r.steps ? `${r.step}/${r.steps}` : r.step) },
  { key: "success", show: (r) => percent(r.success) },
  { key: "peak", show: (r) => percent(r.peak) },
  { key: "seconds_left", head: "left", show: (r) => duration(r.seconds_left) },
  { key: "disk_bytes", head: "disk", show: (r) => bytes(r.disk_bytes) },
  { key: "updated", text: true, show: (r) => (r.updated || "–").replace("T", " ").slice(0, 16) },
];

// runsPage lists all runs; those that are ticked are laid over one another.
export async function runsPage(asked, live) {
  let found = await ask("runs"), order = "run", down = false, wanted = "";
  const ticked = new Set(), place = h("div", null);
  const compare = h("button", { onclick: () => go(link("run", { run: [...ticked] })) });
  const mark = () => {
    compare.disabled = ticked.size < 2;
    compare.textContent = `compare ${ticked.size || ""}`;
  };
  const tick = { head: "", show: (r) => h("input", {
    type: "checkbox", checked: ticked.has(r.run), "aria-label": `compare ${r.run}`,
    onchange: (e) => {
      ticked[e.target.checked ? "add" : "delete"](r.run);
      mark();
    },
  }) };
  const draw = () => {
    const rows = found.runs.filter((r) => `${r.run} ${r.state} ${r.model}`.toLowerCase().includes(wanted));
    const value = (r) => r[order] ?? -Infinity;
    rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1));
    const columns = runColumns.map((c) => ({
      ...c, sorted: c.key === order ? (down ? "descending" : "ascending") : null,
      sort: () => {
        down = order === c.key && !down;
        order = c.key;
        draw();
      },
    }));
    place.replaceChildren(rows.length ? table(rows, [tick, ...columns], { class: "runs" }) :
      h("p", { class: "soft" }, "No run fits."));
    mark();
  };
  draw();
  const timer = setInterval(async () => {
    if (document.hidden || !found.runs.some((r) => r.state === "running")) return;
    const next = await ask("runs").catch(() => null); // the server may be gone for a while
    if (next && live()) {
      found = next;
      draw();
    }
  }, 5000);
  const search = h("input", { type: "search", placeholder: "filter ( / )", "aria-label": "filter runs",
    oninput: (e) => {
      wanted = e.target.value.toLowerCase();
      draw();
    } });
  return {
    path: [], stop: () => clearInterval(timer),
    content: [
      h("h1", null, "Runs"), h("p", { class: "bar" }, search, compare), place,
      found.studies.length ? h("h1", null, "Studies") : null,
      h("ul", null, found.studies.map((study) => h("li", null, h("a", { href: link("study", { study }) }, study)))),
    ],
  };
}

// studyPage shows the tables of summary.json: rows of the same keys are one table.
export async function studyPage(asked) {
  const study = asked.get("study"), tables = new Map();
  for (const row of await ask("study", { study })) {
    const keys = Object.keys(row).join();
    tables.set(keys, [...(tables.get(keys) || []), row]);
  }
  const show = (key) => (row) => {
    if (typeof row[key] !== "number") return String(row[key] ?? "–");
    return /success|share/.test(key) ? percent(row[key]) : number(row[key]);
  };
  const one = (rows) => table(rows, Object.keys(rows[0]).filter((key) => rows.some((r) => r[key] !== null)).map((key) =>
    ({ key, head: key.replaceAll("_", " "), text: rows.some((r) => typeof r[key] === "string"), show: show(key) })));
  const shown = [...tables.values()].map(one);
  return { path: [[study, link("study", { study })]], content: [h("h1", null, study), ...shown] };
}
