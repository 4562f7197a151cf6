(() => {
"use strict";
const all = (what, where) => [...(where || document).querySelectorAll(what)];
const one = (what) => document.querySelector(what);
const near = (e, what) => e.target.closest && e.target.closest(what);
const root = document.documentElement;
document.body.classList.add("on");

// Theme: the system's, or what was chosen here.
const keep = (value) => { try { if (value) localStorage.setItem("tether-theme", value); return localStorage.getItem("tether-theme"); } catch { return null; } };
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
const chosen = keep();
if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
const turn = () => { root.dataset.theme = dark() ? "light" : "dark"; keep(root.dataset.theme); };
one("#theme").addEventListener("click", turn);
one("#help").addEventListener("click", () => one("#keys").showModal());

// What stays at the top while the page scrolls, and what hides below it.
const bar = one("nav"), measure = () => root.style.setProperty("--nav", (getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0) + "px");
addEventListener("resize", measure); measure();

// Filters: findings, lines of source, rows of tables, nodes.
const verdicts = all("details.v"), search = one("#search"), slug = one("#slug"), file = one("#file"), graph = one("#graph");
const rows = all("main tbody tr"), parts = all("section.part"), source = all(".l"), texts = new Map();
const text = (e) => { if (!texts.has(e)) texts.set(e, e.textContent.toLowerCase()); return texts.get(e); };
let hits = [], hit = -1;
const filter = () => {
  const kind = slug ? slug.value : "", of = file ? file.value : "";
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), fits = (s) => words.every((w) => s.includes(w));
  let shown = 0;
  for (const v of verdicts) {
    v.hidden = !(fits(v.dataset.t) && (!kind || v.dataset.s === kind) && (!of || v.dataset.f.split(" ").includes(of)));
    shown += !v.hidden;
  }
  for (const f of all("details.file")) f.hidden = !!of && f.dataset.f !== of;
  for (const l of hits) l.classList.remove("hit");
  hits = words.length ? source.filter((l) => fits(text(l.querySelector("code")))) : []; hit = -1;
  for (const l of hits) l.classList.add("hit");
  let found = 0;
  for (const r of rows) { r.hidden = !fits(text(r)); found += !r.hidden; }
  for (const p of parts) p.hidden = !!words.length && !p.querySelector("tbody tr:not([hidden]),details.v:not([hidden])") && !fits(text(p));
  const said = [];
  if (verdicts.length || slug) said.push(shown + " of " + verdicts.length + " findings");
  if (words.length) { if (source.length) said.push(hits.length + " lines"); said.push(found + " rows"); }
  one("#shown").textContent = words.length || kind || of ? said.join(", ") : "";
  measure();
};
for (const box of [search, slug, file]) if (box) box.addEventListener("input", filter);
const next = () => { if (hits.length) { hit = (hit + 1) % hits.length; show(hits[hit]); } };

// Tables: a click on a heading sorts, numbers and sizes by value.
const units = {B: 1, KiB: 1024, MiB: 1048576, GiB: 1073741824, TiB: 1099511627776};
const value = (s) => { const m = /^\s*#?([\d,.]+)\s*([KMGT]?i?B)?/.exec(s); return m ? parseFloat(m[1].replace(/,/g, "")) * (units[m[2]] || 1) : NaN; };
for (const t of all("th[scope=col]")) {
  t.tabIndex = 0;
  const sort = () => {
    const body = t.closest("table").tBodies[0], at = t.cellIndex, up = t.getAttribute("aria-sort") === "descending";
    for (const o of all("th", t.parentElement)) o.removeAttribute("aria-sort");
    t.setAttribute("aria-sort", up ? "ascending" : "descending");
    for (const g of all("th[scope=rowgroup]", body)) g.parentElement.remove();
    const key = (r) => r.cells[at] ? r.cells[at].textContent : "";
    const found = [...body.rows].sort((a, b) => { const x = key(a), y = key(b), d = value(x) - value(y); return isNaN(d) ? x.localeCompare(y) : d; });
    body.append(...(up ? found : found.reverse()));
  };
  t.addEventListener("click", sort);
  t.addEventListener("keydown", (e) => { if (e.key === "Enter") sort(); });
}

// A repair, to be pasted.
for (const b of all("button.copy")) b.addEventListener("click", () => {
  const lines = b.closest(".fix").querySelector("pre").textContent.trim().split("\n").map((l) => l.replace(/^.*?[:,] ?(line )?\d+: /, "")).join("\n");
  const done = () => { b.textContent = "copied"; setTimeout(() => { b.textContent = "copy"; }, 1500); };
  if (navigator.clipboard) navigator.clipboard.writeText(lines).then(done, () => {}); else done();
});

// Names: what touches the same memory lights up.
const lines = new Map();
for (const l of all(".l[data-g]")) for (const g of l.dataset.g.split(" ")) { if (!lines.has(g)) lines.set(g, []); lines.get(g).push(l); }
let lit = [];
const dim = () => { for (const l of lit) l.classList.remove("lit"); lit = []; };
const light = (name) => { dim(); name.classList.add("lit"); lit.push(name); for (const g of name.dataset.g.split(" ")) for (const l of lines.get(g) || []) { l.classList.add("lit"); lit.push(l); } };
document.addEventListener("mouseover", (e) => { const n = near(e, "i[data-g]"); if (n) light(n); });
document.addEventListener("focusin", (e) => { const l = near(e, ".l[data-g]"); if (l) light(l); else dim(); });
document.addEventListener("mouseout", (e) => { if (near(e, "i[data-g]")) dim(); });

// A name, clicked: every line that touches its memory, in order, and the findings there.
const why = one("#why");
const ask = (name) => {
  const found = new Set(), list = document.createElement("ol"), told = new Set();
  for (const g of name.dataset.g.split(" ")) for (const l of lines.get(g) || []) found.add(l);
  for (const l of source.filter((l) => found.has(l))) {
    const item = document.createElement("li"), a = document.createElement("a"), c = document.createElement("code");
    a.href = "#" + l.id; a.textContent = l.closest("details.file").querySelector("summary").textContent + ":" + l.id.split("-")[1];
    c.textContent = l.querySelector("code").textContent.trim();
    item.append(a, " ", c, " "); for (const m of all(".g", l)) item.append(m.cloneNode(true), " ");
    list.append(item);
    for (const f of all("details.m > a", l)) told.add(f.getAttribute("href"));
  }
  one("#why h2").textContent = name.textContent;
  one("#why p").textContent = "Lines that touch the memory of " + name.textContent + ":";
  const box = one("#why div"); box.replaceChildren(list);
  for (const h of told) { const a = document.createElement("a"); a.href = h; a.textContent = "finding " + h.replace("#finding-", "#") + " "; box.append(a); }
  why.show();
};
document.addEventListener("click", (e) => { const n = near(e, "i[data-g]"); if (n) ask(n); else if (why && (near(e, "#why a") || !near(e, "#why"))) why.close(); });

// The ends of a finding, joined in the source; its part of the drawing stands out.
let joined = null, asked = false; // nothing fades before a finding was chosen
const NS = "http://www.w3.org/2000/svg";
const join = () => {
  for (const s of all("svg.link")) s.remove();
  for (const v of verdicts) v.classList.toggle("now", v === joined && verdicts.length > 1);
  const mine = graph ? all("[data-n]", graph) : [], number = joined && joined.id.slice(8);
  const said = (e) => e.dataset.n.split(" ").includes(number), some = asked && joined && mine.some(said);
  for (const e of mine) e.classList.toggle("off", !!some && e.dataset.n !== "" && !said(e));
  if (!joined) return;
  const ends = joined.dataset.e.split(" ").map((id) => document.getElementById(id)).filter(Boolean);
  for (const f of new Set(ends.map((l) => l.closest(".src")))) {
    const mine = ends.filter((l) => f.contains(l));
    if (mine.length < 2) continue;
    const top = f.getBoundingClientRect().top, at = mine.map((l) => l.getBoundingClientRect().top - top + 10);
    const s = document.createElementNS(NS, "svg"); s.setAttribute("class", "link " + joined.classList[1]); s.setAttribute("aria-hidden", "true");
    const p = document.createElementNS(NS, "path");
    p.setAttribute("d", at.slice(1).map((y) => "M14 " + at[0] + "C2 " + at[0] + " 2 " + y + " 14 " + y).join(""));
    s.append(p);
    for (const y of at) { const c = document.createElementNS(NS, "circle"); c.setAttribute("cx", 14); c.setAttribute("cy", y); c.setAttribute("r", 3.5); s.append(c); }
    f.append(s);
  }
};
let loaded = false;
const open = new Map(verdicts.map((v) => [v, v.open]));
const choose = (v) => {
  asked = asked || loaded; joined = v;
  if (joined) for (const id of joined.dataset.e.split(" ")) { const l = document.getElementById(id); const f = l && l.closest("details.file"); if (f) f.open = true; }
  join();
};
for (const v of verdicts) {
  v.addEventListener("toggle", () => {
    if (open.get(v) === v.open) return; // a browser also tells of what was open from the start
    open.set(v, v.open);
    if (v.open) choose(v); else if (joined === v) choose(null);
  });
  v.addEventListener("click", (e) => { if (!near(e, "summary")) choose(v); });
}
choose(verdicts.length && verdicts[0].open ? verdicts[0] : null);
loaded = true;
addEventListener("resize", join);
document.addEventListener("toggle", (e) => { if (e.target.matches && e.target.matches("details.m,details.file")) join(); }, true);

// A link to something folded opens what it lies in.
const show = (to) => {
  let moved = false;
  for (let d = to; d; d = d.parentElement) if (d.tagName === "DETAILS" && !d.open) { d.open = true; moved = true; }
  if (!moved && !to.closest(".b")) return;
  const go = () => to.scrollIntoView({block: "center"});
  go();
  requestAnimationFrame(() => requestAnimationFrame(go)); // what was folded has its height by then
};
const reveal = () => {
  const to = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (to) show(to);
};
addEventListener("hashchange", reveal); reveal();
// In a notebook's frame a link would lead to the page around: its address is what links start from.
if (location.protocol === "about:") document.addEventListener("click", (e) => {
  const a = near(e, 'a[href^="#"]');
  if (a) { e.preventDefault(); location.hash = a.getAttribute("href"); }
});
const fold = () => { const every = verdicts.some((v) => !v.hidden && !v.open); for (const v of verdicts) if (!v.hidden) v.open = every; };
if (one("#unfold")) one("#unfold").addEventListener("click", fold);
let folded = [];
addEventListener("beforeprint", () => { folded = verdicts.filter((v) => !v.open && !v.hidden); for (const v of folded) v.open = true; });
addEventListener("afterprint", () => { for (const v of folded) v.open = false; });

// The drawing: a click opens the line's chain and the finding; it moves and grows.
if (graph) {
  const whole = graph.viewBox.baseVal, home = [whole.x, whole.y, whole.width, whole.height];
  const set = (x, y, w, h) => graph.setAttribute("viewBox", [x, y, w, h].join(" "));
  const scale = (by) => { const b = graph.viewBox.baseVal; if (!by) return set(...home); const w = b.width / by, h = b.height / by; set(b.x + (b.width - w) / 2, b.y + (b.height - h) / 2, w, h); };
  const move = (dx, dy) => { const b = graph.viewBox.baseVal; set(b.x + dx * b.width, b.y + dy * b.height, b.width, b.height); };
  for (const b of all("#tools button")) b.addEventListener("click", () => scale(+b.dataset.z));
  graph.addEventListener("wheel", (e) => { if (!e.ctrlKey && !e.metaKey) return; e.preventDefault(); scale(e.deltaY < 0 ? 1.15 : 0.87); }, {passive: false});
  let from = null, moved = false;
  graph.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY]; moved = false; });
  addEventListener("pointermove", (e) => {
    if (!from) return;
    const dx = e.clientX - from[0], dy = e.clientY - from[1];
    if (!moved && Math.abs(dx) + Math.abs(dy) < 5) return;
    moved = true; graph.classList.add("held");
    const r = graph.getBoundingClientRect(), b = graph.viewBox.baseVal, by = Math.max(b.width / r.width, b.height / r.height);
    set(b.x - dx * by, b.y - dy * by, b.width, b.height); from = [e.clientX, e.clientY];
  });
  addEventListener("pointerup", () => { from = null; graph.classList.remove("held"); });
  graph.addEventListener("click", (e) => {
    if (moved) { e.preventDefault(); return; }
    const node = near(e, "[data-n]");
    if (!node) return;
    const number = node.dataset.n.split(" ")[0], v = number && document.getElementById("finding-" + number), box = v && (v.matches("details.v") ? v : v.closest("details.v"));
    if (box) { box.open = true; choose(box); }
    const href = node.getAttribute("href"), l = href && document.getElementById(href.slice(1)), m = l && l.querySelector("details.m");
    if (m) m.open = true;
    if (l && location.hash === href) show(l);
  });
  graph.addEventListener("keydown", (e) => {
    const by = {ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1]}[e.key];
    if (by) { e.preventDefault(); move(...by); }
    else if (e.key === "+" || e.key === "=") scale(1.25);
    else if (e.key === "-") scale(0.8);
    else if (e.key === "0") scale(0);
  });
}

// A moment: one line of one step, in the drawing and in the source.
const data = one("#moments");
if (data) {
  const all_ = JSON.parse(data.textContent), when = one("#when"), then = one("#then"), starts = [];
  let count = 0, marked = [];
  for (const [, p] of all_.steps) { starts.push(count); count += all_.patterns[p].length; }
  const at = (m) => { let s = starts.length - 1; while (starts[s] > m) s--; const [step, p] = all_.steps[s], [line, held] = all_.patterns[p][m - starts[s]]; return {step, line, held}; };
  const acts = (now) => all_.ties.filter((t) => now.step >= t.step && t.acts[now.line] !== undefined);
  const size = (k) => k < 1024 ? k + " KiB" : k < 1048576 ? (k / 1024).toFixed(1) + " MiB" : (k / 1048576).toFixed(1) + " GiB";
  const tell = (jump) => {
    for (const e of marked) e.classList.remove("then", "here");
    marked = [];
    const m = +when.value, last = all_.steps[all_.steps.length - 1][0];
    const now = m < count ? at(m) : null, id = now && all_.lines[now.line], l = id && document.getElementById(id);
    when.setAttribute("aria-valuetext", now ? "step " + now.step + ", line " + id.split("-")[1] : "the whole run");
    if (graph) for (const t of all("g.tie", graph)) for (const f of all_.ties) if (t.dataset.n.split(" ").includes(String(f.n))) t.classList.toggle("then", !!now && now.step < f.step);
    if (!now) { then.textContent = "the whole run; move to see one line of one step"; return; }
    then.textContent = (all_.ends && now.step === last ? "after the last step" : "step " + now.step + " of " + (last - all_.ends)) + ", line " + id.split("-")[1] + "; holds " + size(now.held) + " after it";
    const code = document.createElement("code"); code.textContent = l.querySelector("code").textContent.trim(); then.append(code);
    for (const t of acts(now)) { const b = document.createElement("b"), a = document.createElement("a"); a.href = "#finding-" + t.n; a.textContent = "#" + t.n; b.append(t.acts[now.line] + " ", a); then.append(b); }
    l.classList.add("then"); marked.push(l);
    if (graph) for (const a of all("a.node", graph)) if (a.getAttribute("href") === "#" + id) { a.classList.add("here"); marked.push(a); }
    if (jump || matchMedia("(min-width:70rem)").matches) { const f = l.closest("details.file"); if (f && f.open && !near({target: document.activeElement}, "details.v")) l.scrollIntoView({block: "nearest"}); }
  };
  when.addEventListener("input", () => tell(false));
  one("#act").hidden = !all_.ties.length;
  one("#act").addEventListener("click", () => {
    const from = +when.value >= count ? -1 : +when.value;
    for (let n = 1; n <= count; n++) { const m = (from + n) % count; if (acts(at(m)).length) { when.value = m; tell(false); return; } }
    then.textContent = "no write through another name was found in this run";
  });
}

// Keys.
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "Escape") { for (const box of [search, slug, file]) if (box) box.value = ""; filter(); dim(); if (why) why.close(); e.target.blur && e.target.blur(); return; }
  if (e.key === "Enter" && e.target === search) { next(); return; }
  if (/INPUT|SELECT|TEXTAREA/.test(e.target.tagName)) return;
  if (e.key === "/") { e.preventDefault(); search.focus(); }
  else if (e.key === "?") one("#keys").showModal();
  else if (e.key === "t") turn();
  else if (e.key === "f") fold();
  else if (e.key === "n") next();
  else if (e.key === "j" || e.key === "k") {
    const seen = verdicts.filter((v) => !v.hidden), now = seen.indexOf(document.activeElement.closest("details.v"));
    const next = seen[e.key === "j" ? Math.min(now + 1, seen.length - 1) : Math.max(now - 1, 0)];
    if (next) { next.firstElementChild.focus(); next.scrollIntoView({block: "nearest"}); choose(next); }
  }
});
})();
