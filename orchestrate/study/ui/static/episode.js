// Episodes side by side: as text, or token by token in the colours of a number.
import { h, number, percent } from "./dom.js";

const owners = ["template", "environment", "policy", "earlier reply"];

// shades are the ways to colour tokens: how a value becomes a strength from -1 to 1, and what it says.
export const shades = {
  text: { name: "as text" },
  owner: { name: "owner" },
  logprob: { name: "log-prob", scale: (v) => Math.max(-1, v / 4) },
  entropy: { name: "entropy", scale: (v) => Math.min(1, v / 2) },
  advantage: { name: "advantage", scale: (v, most) => v / (most || 1) },
  ratio: { name: "ratio", scale: (v) => Math.max(-1, Math.min(1, 4 * Math.log(v))) },
  staleness: { name: "staleness", scale: (v) => Math.min(1, v / 4) },
};

// episodeView shows views in columns; detail is the element for the numbers of the token in focus.
export function episodeView(views, shade, detail, headOf) {
  return h("div", { class: "columns" }, views.map((view) => column(view, shade, detail, headOf)));
}

function column(view, shade, detail, headOf) {
  const column = view.tokens.columns[shade];
  const missing = shades[shade].scale && !column ? view.notes?.[shade] || "not recorded" : null;
  const note = shades[shade].scale ? missing : view.notes?.text;
  return h("article", { class: "episode" },
    h("h2", null, headOf ? headOf(view) : `${view.kind} ${view.step}, episode ${view.episode}`),
    h("p", null, pill(view), ` score ${number(view.score)} · group ${view.group} · ${view.tag} · `,
      `${view.tokens.id.length} tokens · ended: ${view.stop || "unknown"}`),
    Object.keys(view.components || {}).length ? h("p", null, parts(view.components)) : null,
    view.label ? h("p", { class: "soft" }, `task: ${view.label}`) : null,
    view.gold ? h("p", { class: "soft" }, `right answer: ${view.gold}`) : null,
    note ? h("p", { class: "warn" }, `${shades[shade].name}: ${note}`) : null,
    view.notes?.board ? h("p", { class: "soft" }, view.notes.board) : null,
    view.start ? h("div", { class: "turn" }, h("h3", null, "start"), board(view.start)) : null,
    view.turns.map((turn, i) => h("section", { class: "turn" },
      h("h3", null, `turn ${i + 1} `, h("span", { class: turn.reward > 0 ? "good" : "soft" },
        `reward ${number(turn.reward)} `), parts(turn.components),
        turn.cut ? h("span", { class: "pill bad" }, "reply cut off by max_tokens") : null),
      shade === "text" ? read(turn) : tokens(view, turn, shade, detail),
      turn.actions || turn.board ? h("div", { class: "outcome" },
        h("p", { class: "soft" }, `carried out: ${(turn.actions || []).join(", ") || "nothing"}`),
        turn.board ? board(turn.board) : null) : null)));
}

const pill = ({ success, unjudged }) => unjudged ? h("span", { class: "pill" }, "success unknown") :
  h("span", { class: success ? "pill good" : "pill bad" }, success ? "solved" : "not solved");

const parts = (components) => Object.entries(components || {}).sort().map(([name, value]) =>
  h("span", { class: "part" }, `${name} ${number(value)}`));

// read shows what was said by role, and the reply by its parts.
function read(turn) {
  const said = (kind, text, classes) => h("div", { class: classes }, h("b", null, kind), h("pre", null, text));
  return [turn.messages?.map((m) => said(m.role || "prompt", m.text, "said")),
    turn.parts?.map((p) => said(p.kind, p.text, `said reply ${p.kind}`))];
}

// tokens shows every token of a turn in its colour; focus or pointer tells its numbers.
function tokens(view, turn, shade, detail) {
  const values = view.tokens.columns[shade], special = new Set(view.tokens.special);
  const most = values ? Math.max(...values.filter((v) => v !== null).map(Math.abs)) : 0;
  const line = h("div", { class: "tokens" });
  for (let t = turn.from; t < turn.end; t++) {
    const classes = ["token", special.has(t) && "special", view.tokens.owner[t] === 2 && "policy",
      shade === "owner" && `owner${view.tokens.owner[t]}`];
    const span = h("span", { class: classes.filter(Boolean).join(" "), tabindex: view.tokens.owner[t] === 2 ? 0 : -1 },
      view.tokens.text[t] || "⋯");
    if (values && values[t] !== null && shades[shade].scale) {
      const strength = shades[shade].scale(values[t], most);
      span.style.backgroundColor = `color-mix(in srgb, var(--${strength < 0 ? "low" : "high"}) ` +
        `${Math.round(75 * Math.abs(strength))}%, transparent)`;
    }
    const show = () => tell(view, t, special.has(t), detail);
    span.addEventListener("pointerenter", show);
    span.addEventListener("focus", show);
    line.append(span);
  }
  return line;
}

// tell puts a token's numbers into the line at the foot of the page.
function tell(view, t, special, detail) {
  const columns = view.tokens.columns, p = columns.logprob?.[t];
  const said = [`token ${t}`, `id ${view.tokens.id[t]}`, JSON.stringify(view.tokens.text[t]),
    special ? "special" : null, owners[view.tokens.owner[t]],
    ...Object.keys(columns).sort().map((name) => columns[name][t] === null ? null :
      `${shades[name].name} ${number(columns[name][t])}`),
    p === null || p === undefined ? null : `p ${percent(Math.exp(p))}`];
  detail.hidden = false;
  detail.replaceChildren(...said.filter(Boolean).map((text) => h("span", null, text)));
}

// kinds are what glyphs look like; others are shown as they are.
const kinds = {
  "#": "wall", _: "floor", ".": "floor", O: "aim", X: "box", P: "player", "√": "done", S: "done", G: "goal",
};

// board draws lines of equal length as tiles; other pictures stay text.
export function board(text) {
  const lines = text.split("\n").map((line) => [...line]);
  if (lines.length < 2 || lines.some((line) => line.length !== lines[0].length) || lines[0].length > 24)
    return h("pre", { class: "board" }, text);
  const grid = h("div", { class: "board tiles", role: "img", "aria-label": text },
    lines.flat().map((glyph) => h("span", { class: `tile ${kinds[glyph] || ""}` }, glyph)));
  grid.style.gridTemplateColumns = `repeat(${lines[0].length}, 1.35em)`;
  return grid;
}

// walk moves the focus between tokens by the arrow keys, and the colour by c.
export function walk(event, shade, onshade) {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const names = Object.keys(shades);
  if (event.key === "c") onshade(names[(names.indexOf(shade) + 1) % names.length]);
  if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const all = [...document.querySelectorAll(".token.policy")];
  if (!all.length) return;
  const at = all.indexOf(document.activeElement), step = event.key === "ArrowRight" ? 1 : -1;
  all[(at + step + all.length) % all.length].focus();
  event.preventDefault();
}
