// The pages, each under the name of its view: an address that changes opens the one that it names.
import { h } from "./dom.js";
import { runsPage, studyPage } from "./lists.js";
import { runPage } from "./run.js";
import { searchPage } from "./search.js";
import { episodesPage, stepPage } from "./steps.js";

const views = { runs: runsPage, study: studyPage, run: runPage, step: stepPage, search: searchPage, episodes: episodesPage };
const main = document.getElementById("main");
let leave = () => {}; // stops what the page before had going on

async function show() {
  const [name, query] = location.hash.slice(1).split("?");
  const asked = new URLSearchParams(query), view = views[name] || runsPage;
  leave();
  let live = true, stop = () => {};
  leave = () => { live = false; stop(); };
  document.getElementById("detail").hidden = true;
  try {
    const page = await view(asked, () => live);
    if (!live) return;
    stop = page.stop || stop;
    document.title = `${page.path.at(-1)?.[0] || "runs"} · Gyre`;
    document.getElementById("path").replaceChildren(...page.path.map(([text, to]) => h("a", { href: to }, text)));
    main.replaceChildren(...page.content.filter(Boolean));
  } catch (error) {
    const back = h("p", null, h("a", { href: "#runs" }, "all runs"));
    if (live) main.replaceChildren(h("p", { class: "warn" }, error.message), back);
  }
  main.dataset.ready = name || "runs"; // for those who wait for the page
}

addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    document.querySelector("input[type=search]")?.focus();
    event.preventDefault();
  }
  if (event.key === "u") document.querySelector("#path a:nth-last-child(2), .brand").click();
});
show();
