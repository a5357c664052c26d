// The groups of a step, and episodes side by side.
import { ask, go, link } from "./address.js";
import { strip } from "./chart.js";
import { choice, field, h, number, table } from "./dom.js";
import { episodeView, shades, walk } from "./episode.js";
import { short } from "./run.js";

export const filters = ["tag", "stop", "low", "high", "shortest", "longest", "text", "order"];
const stops = ["terminated", "actions", "turns", "length", "timeout", "panic", "error"];
const orders = {
  spread: (a, b) => b.spread - a.spread,
  reward: (a, b) => b.mean - a.mean,
  group: (a, b) => a.group - b.group,
};
const shownGroups = 200;
export const mostBeside = 16;

export const same = (keys) => keys.map((key) => [key, key]);
export const name = (run, e) => `${e.kind}:${e.step}:${e.episode}:${run}`; // of an episode, for the server

// stepPage lists the groups of a step by the spread of their rewards.
export async function stepPage(asked) {
  const run = asked.get("run"), kept = Object.fromEntries(filters.map((f) => [f, asked.get(f)]));
  const [found, info] = await Promise.all([
    ask("step", { ...kept, run, kind: asked.get("kind"), step: asked.get("step") }),
    ask("run", { run }),
  ]);
  found.groups.sort(orders[kept.order] || orders.spread);
  const at = { run, kind: found.kind, step: found.step }, title = `${found.kind} ${found.step}`;
  const list = info.files[found.kind] || [], position = list.indexOf(found.step);
  const step = (to, text) => (list[to] === undefined ? h("span", { class: "soft" }, text) :
    h("a", { href: link("step", { ...at, ...kept, step: list[to] }) }, text));
  const count = found.groups.reduce((sum, g) => sum + g.episodes.length, 0);
  const rest = found.groups.length - shownGroups;
  return {
    path: [[run, link("run", { run })], [title, link("step", at)]],
    content: [
      h("h1", null, title),
      h("p", null, step(position - 1, "← before"), " · ", step(position + 1, "next →"),
        h("span", { class: "soft" }, ` · ${count} of ${found.episodes} episodes in ${found.groups.length} groups`)),
      filterBar(found.groups.flatMap((g) => g.episodes), kept, Object.keys(orders),
        (values) => go(link("step", { ...at, ...kept, ...values }), true)),
      h("p", null, h("a", { href: link("search", { ...kept, run, kind: found.kind }) }, "the same in all steps")),
      count ? groups(run, found.groups) : h("p", { class: "soft" }, "No episode fits."),
      rest > 0 ? h("p", { class: "soft" }, `${rest} further groups: filter them.`) : null,
    ],
  };
}

// filterBar has a field for everything that episodes are chosen by, and one for the orders that there are.
export function filterBar(episodes, kept, orders, change) {
  const tags = [...new Set([...episodes.map((e) => e.tag), kept.tag].filter(Boolean))];
  const input = (key, label, type) => field(label, h("input", {
    type, step: "any", value: kept[key] || "", size: 8, onchange: (e) => change({ [key]: e.target.value }),
  }));
  const pick = (key, label, options) => field(label, choice(options, kept[key] || options[0][0],
    (value) => change({ [key]: value })));
  return h("p", { class: "bar" },
    input("text", "text ( / )", "search"),
    pick("tag", "tag", [["", "all"], ...same(tags)]),
    pick("stop", "ended", [["", "all"], ...same(stops)]),
    input("low", "score from", "number"), input("high", "to", "number"),
    input("shortest", "tokens from", "number"), input("longest", "to", "number"),
    orders.length ? pick("order", "order", same(orders)) : "");
}

// groups is a row per group, with its scores as dots and a link to every episode.
function groups(run, list) {
  let [low, high] = [Infinity, -Infinity];
  for (const e of list.flatMap((g) => g.episodes)) [low, high] = [Math.min(low, e.score), Math.max(high, e.score)];
  const beside = (g) => link("episodes", { e: g.episodes.slice(0, mostBeside).map((e) => name(run, e)) });
  const episode = (e) => h("a", {
    class: e.success ? "good" : null, href: link("episodes", { e: name(run, e) }),
    title: `score ${number(e.score)}, ${e.stop}, ${e.tokens} tokens`,
  }, e.episode);
  return table(list.slice(0, shownGroups), [
    { key: "group", show: (g) => h("a", { href: beside(g) }, `${g.group}`) },
    { key: "tag", text: true, show: (g) => g.episodes[0].tag },
    { key: "mean", show: (g) => number(g.mean) },
    { key: "spread", head: "std", show: (g) => number(g.spread) },
    { head: `scores, ${number(low)} to ${number(high)}`, text: true,
      show: (g) => strip(g.episodes.map((e) => [e.score, e.success]), low, high) },
    { head: "solved", show: (g) => g.episodes.some((e) => e.unjudged) ? "–" :
      `${g.episodes.filter((e) => e.success).length}/${g.episodes.length}` },
    { head: "trained on", text: true, show: (g) =>
      g.kept === null ? "–" : !g.kept ? "no" : g.spread || g.episodes.length < 2 ? "yes" : "yes, all scores equal" },
    { head: "episodes", text: true, show: (g) => h("span", { class: "links" }, g.episodes.slice(0, 32).map(episode)) },
  ]);
}

// episodesPage shows episodes side by side.
export async function episodesPage(asked) {
  const names = asked.getAll("e"), shade = asked.get("shade") || "text";
  const [views, { runs }] = await Promise.all([ask("episodes", { e: names }), ask("runs")]);
  const first = views[0], step = link("step", { run: first.run, kind: first.kind, step: first.step });
  const change = (values) => go(link("episodes", { e: names, shade, ...values }), true);
  const mates = async () => {
    const found = await ask("step", { run: first.run, kind: first.kind, step: first.step });
    const group = found.groups.find((g) => g.group === first.group).episodes.slice(0, mostBeside);
    change({ e: group.map((e) => name(first.run, e)) });
  };
  const head = (view) => {
    const own = name(view.run, view);
    const away = h("button", { class: "plain", "aria-label": "remove",
      onclick: () => change({ e: names.filter((n) => n !== own) }) }, "×");
    return [h("a", { href: link("episodes", { e: own, shade }) }, `episode ${view.episode}`),
      ` · ${view.kind} ${view.step}`, h("span", { class: "soft" }, ` ${view.run.split("/").at(-1)} `),
      names.length > 1 ? away : ""];
  };
  const keys = (event) => walk(event, shade, (next) => change({ shade: next }));
  addEventListener("keydown", keys);
  const title = views.length > 1 ? `${views.length} episodes` : `episode ${first.episode}`;
  const colours = Object.entries(shades).map(([key, s]) => [key, s.name]);
  return {
    path: [[first.run, link("run", { run: first.run })], [`${first.kind} ${first.step}`, step],
      [title, link("episodes", { e: names, shade })]],
    stop: () => removeEventListener("keydown", keys),
    content: [
      h("p", { class: "bar" }, field("colour ( c )", choice(colours, shade, (next) => change({ shade: next }))),
        h("button", { onclick: mates }, "group mates")),
      besideForm(names, first, runs, change),
      episodeView(views, shade, document.getElementById("detail"), head),
    ],
  };
}

// besideForm puts the same task of another step, or run, beside the episodes.
function besideForm(names, first, runs, change) {
  const place = { run: first.run, kind: first.kind, step: first.step }, wrong = h("span", { class: "warn" });
  const add = async (event) => {
    event.preventDefault();
    try {
      const found = await ask("same", { e: names[0], ...place });
      const further = found.map((e) => name(place.run, e)).filter((n) => !names.includes(n));
      if (further.length) change({ e: [...names, ...further.slice(0, mostBeside)] });
      else wrong.textContent = `${place.kind} ${place.step} has no other episode of ${first.task}`;
    } catch (error) {
      wrong.textContent = error.message;
    }
  };
  const pick = (key, options) => choice(options, place[key], (value) => { place[key] = value; });
  const folders = runs.map((r) => r.run), called = short(folders);
  return h("form", { class: "bar", onsubmit: add }, h("span", null, "The same task in"),
    field("run", pick("run", folders.map((run, i) => [run, called[i]]))),
    field("of", pick("kind", same(["step", "validation", "analysis"]))),
    field("step", h("input", { type: "number", min: 0, value: place.step,
      oninput: (e) => { place.step = e.target.value; } })),
    h("button", null, "compare"), wrong);
}
