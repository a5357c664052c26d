// One run, or several over one another: state, curves, what differs, the way to the steps.
import { ask, go, link } from "./address.js";
import { suspects } from "./causes.js";
import { chart } from "./chart.js";
import { bytes, choice, duration, field, h, percent, plain } from "./dom.js";
import { state } from "./lists.js";

// panels are the curves of a page: a title, and metrics by what they are called in it.
const panels = [
  ["Success", { "val-env/*/success": "validation", "train/*/success": "training" }],
  ["Return", { "val-env/charts/avg_episode_return": "validation", "train/charts/avg_episode_return": "training" }],
  ["Reward spread in groups", { "rollout/in_group_reward_std": "all", "rollout/chosen_in_group_reward_std": "kept" }],
  ["Groups kept", { "rollout/filter_kept_ratio": "share" }],
  ["Entropy", { "actor/entropy": "nats per token" }],
  ["Gradient norm", { "actor/grad_norm": "actor", "train/grad_norm": "supervised" }],
  ["Gradient norm of the critic", { "critic/grad_norm": "critic" }],
  ["Policy change", { "actor/ppo_kl": "KL per update" }],
  ["Distance to the reference", { "actor/kl_loss": "KL" }],
  ["Loss", { "train/loss": "supervised", "val/loss": "held out", "actor/pg_loss": "policy" }],
  ["Tokens without signal", { "why/no_signal_share": "all", "why/equal_reward_share": "groups that earned the same" }],
  ["Change of the return between validations",
    { "forecast/score/came": "measured", "forecast/score/predicted": "predicted" }],
  ["Reply length", { response_length: "tokens" }],
  ["Utilization", { "perf/useful": "share of the step" }],
  ["Seconds per step", { "timing_s/step": "step", "timing_s/gen": "playing" }],
];

export async function runPage(asked, live) {
  const runs = asked.getAll("run"), more = asked.getAll("metric"), names = short(runs), several = runs.length > 1;
  const shown = [...panels, ...more.map((key) => [key, { [key]: "" }])];
  const keys = shown.flatMap(([, list]) => Object.keys(list));
  const curves = h("div", { class: "charts" }), head = h("div", null);
  let info;
  const load = async () => {
    const [all, found] = await Promise.all([
      Promise.all(runs.map((run) => ask("run", { run }))),
      ask("series", { run: runs, key: keys }),
    ]);
    if (!live()) return;
    info = all;
    const open = !several && all[0].files.step ? (step) => go(link("step", { run: runs[0], step })) : null;
    head.replaceChildren(...all.map((one, i) => about(one.summary[0], several ? `key hue${i % 8}` : "", names[i])));
    const drawn = shown.map(([title, list]) => {
      const first = Object.keys(list).find((key) => found.some((c) => c.key === key));
      const own = found.filter((c) => c.key in list).map((c, i) => ({
        ...c, hue: several ? runs.indexOf(c.run) : i, dash: several && c.key !== first,
        label: [several ? names[runs.indexOf(c.run)] : "", list[c.key]].filter(Boolean).join(" "),
      }));
      return own.length ? chart(title, own, open) : null;
    }).filter(Boolean);
    curves.replaceChildren(...(drawn.length ? drawn : [h("p", { class: "soft" }, "Nothing has been logged yet.")]));
  };
  await load();
  const running = () => info.some((one) => one.summary[0].state === "running");
  const timer = setInterval(() => {
    if (!document.hidden && running()) load().catch(() => {}); // the server may be gone for a while
  }, 3000);
  const found = several ? await ask("compare", { run: runs }) : null;
  const metrics = [...new Set(info.flatMap((one) => one.metrics))];
  const add = h("input", { type: "search", list: "metrics", placeholder: "add a curve ( / )", size: 24,
    "aria-label": "add a curve",
    onchange: (e) => go(link("run", { run: runs, metric: [...more, e.target.value] }), true) });
  return {
    path: [[several ? `${runs.length} runs` : runs[0], link("run", { run: runs })]],
    stop: () => clearInterval(timer),
    content: [
      h("h1", null, several ? "Comparison" : names[0]), head,
      several ? null : steps(runs[0], info[0].files),
      h("p", { class: "bar" }, add, h("datalist", { id: "metrics" }, metrics.map((m) => h("option", { value: m })))),
      ...(several ? [...paired(found), h("p", { class: "soft" }, "Each curve is one run. Bands of validation success are " +
        "95 % intervals over its episodes; other curves have none.")] : []),
      several ? null : suspects(runs[0]),
      curves,
      ...(several ? differences(found) :
        [h("details", null, h("summary", null, "configuration"), h("pre", null, info[0].config))]),
    ],
  };
}

// short names runs by their folders, and those of one name by their paths.
export function short(runs) {
  const last = (run) => run.split("/").at(-1);
  return runs.map((run) => (runs.filter((other) => last(other) === last(run)).length > 1 ? run : last(run)));
}

const about = (run, mark, name) => h("p", null, mark ? h("span", { class: mark }, name + " ") : "", state(run),
  ` step ${run.steps ? `${run.step} of ${run.steps}` : run.step}`,
  ` · success ${percent(run.success)}, at its peak ${percent(run.peak)}`,
  run.seconds_left === null ? "" : ` · ${duration(run.seconds_left)} left`, ` · ${bytes(run.disk_bytes)}`,
  run.reason ? ` · ${run.reason}` : "");

// steps leads to the episodes of a step.
function steps(run, files) {
  const kinds = Object.keys(files);
  if (!kinds.length) return h("p", { class: "soft" }, "No episodes were saved (run.save_rollouts).");
  let kind = kinds.includes("step") ? "step" : kinds[0];
  const number = h("input", { type: "number", min: 0, value: files[kind].at(-1) });
  const visit = (event) => {
    event.preventDefault();
    go(link("step", { run, kind, step: number.value }));
  };
  const pick = choice(kinds.map((k) => [k, k]), kind, (k) => {
    kind = k;
    number.value = files[k].at(-1);
  });
  return h("form", { class: "bar", onsubmit: visit }, h("b", null, "Episodes "), field("of", pick),
    field("step", number), h("button", null, "open"),
    h("a", { href: link("search", { run }) }, "search all steps"),
    files.step ? h("span", { class: "soft" }, "or click on a curve") : null);
}

// paired is how the others differ from the first run, task by task.
const paired = (found) => (found.note ? [h("h2", null, "Paired difference"), h("p", null, found.note),
  found.paired ? plain(found.paired.map(({ changed, ...row }) => row)) : null] : []);

function differences(found) {
  return [h("h2", null, "Where the configurations differ"), plain(found.configuration),
    h("h2", null, "Build and seeds"), plain(found.build),
    h("h2", null, "Files that the configurations name"), plain(found.files.map(({ diff, ...row }) => row)),
    ...found.files.filter((row) => row.diff).map((row) =>
      h("details", null, h("summary", null, row.file), h("pre", null, row.diff))),
    h("h2", null, "Metrics at the end"), plain(found.ends)];
}
