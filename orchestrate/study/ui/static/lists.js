// The lists: runs, and the tables of a study.
import { ask, go, link } from "./app.js";
import { bytes, duration, h, number, percent, table } from "./dom.js";

const moods = { done: "good", running: "live", failed: "bad", unreadable: "bad", stopped_early: "bad" };
export const state = (run) => h("span", { class: `pill ${moods[run.state] || ""}`, title: run.reason }, run.state.replaceAll("_", " ") || "unknown");

// runsPage lists all runs; those that are ticked are laid over one another.
export async function runsPage(asked, live) {
  let found = await ask("runs");
  const ticked = new Set();
  let order = "run", down = false, wanted = "";
  const place = h("div", null), compare = h("button", { onclick: () => go(link("run", { run: [...ticked] })) }, "compare");
  const columns = [
    { head: "", show: (r) => h("input", { type: "checkbox", checked: ticked.has(r.run), "aria-label": `compare ${r.run}`,
      onchange: (e) => { ticked[e.target.checked ? "add" : "delete"](r.run); mark(); } }) },
    { key: "run", text: true, show: (r) => h("a", { href: link("run", { run: r.run }) }, r.run) },
    { key: "state", text: true, show: state },
    { key: "step", show: (r) => (r.steps ? `${r.step}/${r.steps}` : r.step) },
    { key: "success", show: (r) => percent(r.success) }, { key: "peak", show: (r) => percent(r.peak) },
    { key: "seconds_left", head: "left", show: (r) => duration(r.seconds_left) },
    { key: "disk_bytes", head: "disk", show: (r) => bytes(r.disk_bytes) },
    { key: "updated", text: true, show: (r) => (r.updated || "–").replace("T", " ").slice(0, 16) }];
  const mark = () => { compare.disabled = ticked.size < 2; compare.textContent = `compare ${ticked.size || ""}`; };
  const draw = () => {
    const rows = found.runs.filter((r) => `${r.run} ${r.state} ${r.model}`.toLowerCase().includes(wanted));
    rows.sort((a, b) => ((a[order] ?? -Infinity) < (b[order] ?? -Infinity) ? -1 : 1) * (down ? -1 : 1));
    for (const c of columns) {
      c.sort = c.key && (() => { down = order === c.key && !down; order = c.key; draw(); });
      c.sorted = c.key === order ? (down ? "descending" : "ascending") : null;
    }
    place.replaceChildren(rows.length ? table(rows, columns, { class: "runs" }) : h("p", { class: "soft" }, "No run fits."));
    mark();
  };
  draw();
  const timer = setInterval(async () => {
    if (document.hidden || !found.runs.some((r) => r.state === "running")) return;
    const next = await ask("runs").catch(() => null);
    if (next && live()) { found = next; draw(); }
  }, 5000);
  const search = h("input", { type: "search", placeholder: "filter ( / )", "aria-label": "filter runs",
    oninput: (e) => { wanted = e.target.value.toLowerCase(); draw(); } });
  return { path: [], stop: () => clearInterval(timer), content: [h("h1", null, "Runs"), h("p", { class: "bar" }, search, compare), place,
    found.studies.length ? h("h1", null, "Studies") : null,
    h("ul", null, found.studies.map((s) => h("li", null, h("a", { href: link("study", { study: s }) }, s))))] };
}

// studyPage shows the tables of summary.json: rows of the same keys are one table.
export async function studyPage(asked) {
  const study = asked.get("study"), tables = new Map();
  for (const row of await ask("study", { study })) {
    const key = Object.keys(row).join();
    tables.set(key, [...(tables.get(key) || []), row]);
  }
  const show = (row, key) => (/success|share/.test(key) && typeof row[key] === "number" ? percent(row[key]) :
    typeof row[key] === "number" ? number(row[key]) : String(row[key] ?? "–"));
  return { path: [[study, link("study", { study })]], content: [h("h1", null, study), [...tables.values()].map((rows) => {
    const known = Object.keys(rows[0]).filter((key) => rows.some((r) => r[key] !== null));
    return table(rows, known.map((key) => ({ key, head: key.replaceAll("_", " "), text: typeof rows[0][key] === "string",
      show: (row) => show(row, key) })));
  })].flat() };
}
