// What a run's history points at, with the way to the episodes.
import { ask, link } from "./address.js";
import { h, plain } from "./dom.js";

// suspects are the causes that the run's history points at, looked for when they are opened; each leads to episodes.
export function suspects(run) {
  const found = h("div", null, h("p", { class: "soft" }, "Reading the history …"));
  const look = async () => {
    const { causes, said } = await ask("why", { run });
    found.replaceChildren(h("p", { class: "soft" }, said), ...(causes.length ? [plain(causes.map(({ p, look, ...row }) => row)),
      ...causes.filter((row) => row.look).map((row) => h("p", null, `${row.cause}: `, ...row.look.split(" ").map((place) => {
        const [step, episode] = place.split("/");
        return h("span", null, h("a", { href: link("episodes", { e: `step:${step}:${episode}:${run}` }) }, place), " ");
      })))] : []));
  };
  return h("details", { ontoggle: (e) => {
    if (e.target.open) look().catch((problem) => found.replaceChildren(h("p", { class: "warn" }, problem.message)));
  } }, h("summary", null, "suspected causes"), found);
}
