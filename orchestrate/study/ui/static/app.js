// The pages: an address (#view?key=value…) names each; nothing else is remembered.
import { h } from "./dom.js";
import { runsPage, studyPage } from "./lists.js";
import { runPage } from "./run.js";
import { searchPage } from "./search.js";
import { episodesPage, stepPage } from "./steps.js";

const views = { runs: runsPage, study: studyPage, run: runPage, step: stepPage, search: searchPage, episodes: episodesPage };
const main = document.getElementById("main");
let leave = () => {}; // stops what the page before had going on

// link is the address of a view; a list gives its key several times.
export function link(view, values) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values || {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== "" && one !== null && one !== undefined) query.append(key, one);
    }
  }
  return `#${view}?${query}`;
}

// ask gets JSON from the server; what is wrong becomes an Error with the server's words.
export async function ask(path, values) {
  const response = await fetch(`api/${path}${link("", values).slice(1)}`);
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

// go opens an address, in place of the present one where it is only another form of it.
export function go(address, replace) {
  if (!replace) location.hash = address;
  else {
    history.replaceState(null, "", address);
    show();
  }
}

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
