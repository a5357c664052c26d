// The groups of a step, and episodes side by side.
import { ask, go, link } from "./app.js";
import { strip } from "./chart.js";
import { choice, field, h, number, table } from "./dom.js";
import { episodeView, shades, walk } from "./episode.js";

const filters = ["tag", "stop", "low", "high", "shortest", "longest", "text", "order"];
const stops = ["terminated", "actions", "turns", "length", "timeout", "panic", "error"];
const shownGroups = 200, mostBeside = 16;

const name = (run, e) => `${e.kind}:${e.step}:${e.episode}:${run}`;

// stepPage lists the groups of a step by the spread of their rewards.
export async function stepPage(asked) {
  const run = asked.get("run"), kept = Object.fromEntries(filters.map((f) => [f, asked.get(f)]));
  const [found, info] = await Promise.all([ask("step", { ...kept, run, kind: asked.get("kind"), step: asked.get("step") }), ask("run", { run })]);
  const at = { run, kind: found.kind, step: found.step }, change = (values) => go(link("step", { ...at, ...kept, ...values }), true);
  const orders = { spread: (a, b) => b.spread - a.spread, reward: (a, b) => b.mean - a.mean, group: (a, b) => a.group - b.group };
  found.groups.sort(orders[kept.order] || orders.spread);
  const all = found.groups.flatMap((g) => g.episodes), tags = [...new Set(all.map((e) => e.tag))];
  let [low, high] = [Infinity, -Infinity];
  for (const e of all) [low, high] = [Math.min(low, e.score), Math.max(high, e.score)];
  const input = (key, label, type) => field(label, h("input", { type, step: "any", value: kept[key] || "", size: 8,
    onchange: (e) => change({ [key]: e.target.value }) }));
  const list = info.files[found.kind] || [], position = list.indexOf(found.step);
  const step = (to, text) => (list[to] === undefined ? h("span", { class: "soft" }, text) :
    h("a", { href: link("step", { ...at, ...kept, step: list[to] }) }, text));
  const groups = table(found.groups.slice(0, shownGroups), [
    { key: "group", show: (g) => h("a", { href: link("episodes", { e: g.episodes.slice(0, mostBeside).map((e) => name(run, e)) }) }, `${g.group}`) },
    { key: "tag", text: true, show: (g) => g.episodes[0].tag }, { key: "mean", show: (g) => number(g.mean) },
    { key: "spread", head: "std", show: (g) => number(g.spread) },
    { head: `scores, ${number(low)} to ${number(high)}`, text: true, show: (g) => strip(g.episodes.map((e) => [e.score, e.success]), low, high) },
    { head: "solved", show: (g) => `${g.episodes.filter((e) => e.success).length}/${g.episodes.length}` },
    { head: "learned from", text: true, show: (g) => (g.kept === null ? "–" : g.kept ? "yes" : "no") },
    { head: "episodes", text: true, show: (g) => h("span", { class: "links" }, g.episodes.slice(0, 32).map((e) => h("a", { class: e.success ? "good" : null,
      href: link("episodes", { e: name(run, e) }), title: `score ${number(e.score)}, ${e.stop}, ${e.tokens} tokens` }, e.episode))) },
  ], { class: "groups" });
  return { path: [[run, link("run", { run })], [`${found.kind} ${found.step}`, link("step", at)]], content: [
    h("h1", null, `${found.kind} ${found.step}`), h("p", null, step(position - 1, "← before"), " · ", step(position + 1, "next →"),
      h("span", { class: "soft" }, ` · ${all.length} of ${found.episodes} episodes in ${found.groups.length} groups`)),
    h("p", { class: "bar" }, input("text", "text ( / )", "search"), field("tag", choice([["", "all"], ...tags.map((t) => [t, t])], kept.tag || "", (tag) => change({ tag }))),
      field("ended", choice([["", "all"], ...stops.map((s) => [s, s])], kept.stop || "", (stop) => change({ stop }))),
      input("low", "score from", "number"), input("high", "to", "number"), input("shortest", "tokens from", "number"), input("longest", "to", "number"),
      field("order", choice(Object.keys(orders).map((o) => [o, o]), kept.order || "spread", (order) => change({ order })))),
    all.length ? groups : h("p", { class: "soft" }, "No episode fits."),
    found.groups.length > shownGroups ? h("p", { class: "soft" }, `${found.groups.length - shownGroups} further groups: filter them.`) : null] };
}

// episodesPage shows episodes side by side and puts the same task of another step or run beside them.
export async function episodesPage(asked) {
  const names = asked.getAll("e"), shade = asked.get("shade") || "text";
  const [views, { runs }] = await Promise.all([ask("episodes", { e: names }), ask("runs")]);
  const change = (values) => go(link("episodes", { e: names, shade, ...values }), true);
  const detail = document.getElementById("detail"), first = views[0];
  const head = (view) => {
    const own = name(view.run, view);
    return [h("a", { href: link("episodes", { e: own, shade }) }, `episode ${view.episode}`), ` · ${view.kind} ${view.step}`,
      h("span", { class: "soft" }, ` ${view.run.split("/").at(-1)} `), names.length > 1 ? h("button", { class: "plain", "aria-label": "take away",
        onclick: () => change({ e: names.filter((n) => n !== own) }) }, "×") : ""];
  };
  const beside = { run: first.run, kind: first.kind, step: first.step }, wrong = h("span", { class: "warn" });
  const add = async (event) => {
    event.preventDefault();
    try {
      const found = await ask("same", { e: names[0], ...beside });
      const further = found.map((e) => name(beside.run, e)).filter((n) => !names.includes(n));
      if (further.length) change({ e: [...names, ...further.slice(0, mostBeside)] });
      else wrong.textContent = `${beside.kind} ${beside.step} has no other episode of ${first.task}`;
    } catch (error) { wrong.textContent = error.message; }
  };
  const mates = async () => {
    const found = await ask("step", { run: first.run, kind: first.kind, step: first.step });
    change({ e: found.groups.find((g) => g.group === first.group).episodes.slice(0, mostBeside).map((e) => name(first.run, e)) });
  };
  const keys = (event) => walk(event, shade, (next) => change({ shade: next }));
  addEventListener("keydown", keys);
  return { path: [[first.run, link("run", { run: first.run })], [`${first.kind} ${first.step}`, link("step", { run: first.run, kind: first.kind, step: first.step })],
    [views.length > 1 ? `${views.length} episodes` : `episode ${first.episode}`, link("episodes", { e: names, shade })]],
  stop: () => removeEventListener("keydown", keys), content: [
    h("p", { class: "bar" }, field("colour ( c )", choice(Object.entries(shades).map(([key, s]) => [key, s.name]), shade, (next) => change({ shade: next }))),
      h("button", { onclick: mates }, "group mates")),
    h("form", { class: "bar", onsubmit: add }, h("span", null, "The same task in"), field("run", choice(runs.map((r) => [r.run, r.run]), beside.run, (run) => { beside.run = run; })),
      field("of", choice(["step", "validation", "analysis"].map((k) => [k, k]), beside.kind, (kind) => { beside.kind = kind; })),
      field("step", h("input", { type: "number", min: 0, value: beside.step, oninput: (e) => { beside.step = e.target.value; } })),
      h("button", null, "put beside"), wrong),
    episodeView(views, shade, detail, head)] };
}
