// The episodes of all steps of a run that fit: a page that looks further back when asked.
import { ask, go, link } from "./address.js";
import { choice, field, h, number, table } from "./dom.js";
import { filterBar, filters, mostBeside, name, same } from "./steps.js";

export async function searchPage(asked, live) {
  const run = asked.get("run"), kept = Object.fromEntries(filters.map((f) => [f, asked.get(f)]));
  const info = await ask("run", { run }), kinds = Object.keys(info.files);
  const kind = asked.get("kind") || (kinds.includes("step") ? "step" : kinds[0]);
  const found = [], ticked = new Set(), list = h("div", null), foot = h("p", { class: "bar" });
  let steps = 0, next = null;
  const beside = h("button", {
    onclick: () => go(link("episodes", { e: [...ticked].slice(0, mostBeside) })) });
  const mark = () => {
    beside.disabled = !ticked.size;
    beside.textContent = `put ${ticked.size || ""} side by side`;
  };
  const draw = () => {
    list.replaceChildren(found.length ? table(found, columns(run, ticked, mark), { class: "found" }) :
      h("p", { class: "soft" }, "No episode fits."));
    foot.replaceChildren(h("span", { class: "soft" },
      `${found.length} episodes in ${steps} of ${(info.files[kind] || []).length} steps`),
      next < 0 ? "" : h("button", { onclick: (event) => further(event.target) }, `search on from step ${next}`),
      beside);
    mark();
  };
  const further = async (button) => {
    if (button) button.disabled = true;
    const more = await ask("search", { ...kept, run, kind, from: next });
    if (!live()) return;
    found.push(...more.episodes);
    steps += more.steps;
    next = more.next;
    draw();
  };
  await further();
  const change = (values) => go(link("search", { ...kept, run, kind, ...values }), true);
  return {
    path: [[run, link("run", { run })], ["search", link("search", { run, kind })]],
    content: [
      h("h1", null, "Episodes of all steps"),
      h("p", { class: "bar" }, field("of", choice(same(kinds), kind, (picked) => change({ kind: picked })))),
      filterBar(found, kept, [], change), foot, list,
    ],
  };
}

const columns = (run, ticked, mark) => [
  { head: "", show: (e) => h("input", {
    type: "checkbox", checked: ticked.has(name(run, e)), "aria-label": `choose step ${e.step}, episode ${e.episode}`,
    onchange: (event) => {
      ticked[event.target.checked ? "add" : "delete"](name(run, e));
      mark();
    },
  }) },
  { key: "step", show: (e) => h("a", { href: link("step", { run, kind: e.kind, step: e.step }) }, e.step) },
  { key: "episode", show: (e) => h("a", { href: link("episodes", { e: name(run, e) }) }, e.episode) },
  { key: "group" },
  { key: "score", show: (e) => number(e.score) },
  { head: "solved", text: true, show: (e) => (e.unjudged ? "–" : e.success ? "yes" : "no") },
  { head: "ended", text: true, show: (e) => e.stop },
  { key: "tokens" }, { key: "turns" },
  { key: "task", text: true },
];
