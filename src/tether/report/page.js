(() => {
"use strict";
const all = (what, where) => [...(where || document).querySelectorAll(what)];
const one = (what) => document.querySelector(what);
const root = document.documentElement;
document.body.classList.add("on");

// Theme: the system's, or what was chosen here.
const keep = (value) => { try { if (value) localStorage.setItem("tether-theme", value); return localStorage.getItem("tether-theme"); } catch { return null; } };
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
const chosen = keep();
if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
const turn = () => { root.dataset.theme = dark() ? "light" : "dark"; keep(root.dataset.theme); };
one("#theme").addEventListener("click", turn);

// What stays at the top while the page scrolls, and what hides below it.
const bar = one("nav"), measure = () => root.style.setProperty("--nav", (getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0) + "px");
addEventListener("resize", measure); measure();

// Filters.
const verdicts = all("details.v"), search = one("#search"), slug = one("#slug"), file = one("#file");
const filter = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const v of verdicts) {
    const text = v.dataset.t;
    v.hidden = !(words.every((w) => text.includes(w)) && (!slug.value || v.dataset.s === slug.value) && (!file.value || v.dataset.f.split(" ").includes(file.value)));
    shown += !v.hidden;
  }
  for (const f of all("details.file")) f.hidden = !!file.value && f.dataset.f !== file.value;
  for (const r of all(".route")) r.hidden = !words.every((w) => r.dataset.t.includes(w));
  one("#shown").textContent = shown + " of " + verdicts.length + " shown";
};
for (const box of [search, slug, file]) box.addEventListener("input", filter);

// Names: what touches the same memory lights up.
const lines = new Map();
for (const l of all(".l[data-g]")) for (const g of l.dataset.g.split(" ")) { if (!lines.has(g)) lines.set(g, []); lines.get(g).push(l); }
let lit = [];
const dim = () => { for (const l of lit) l.classList.remove("lit"); lit = []; };
const light = (name) => { dim(); name.classList.add("lit"); lit.push(name); for (const g of name.dataset.g.split(" ")) for (const l of lines.get(g) || []) { l.classList.add("lit"); lit.push(l); } };
document.addEventListener("mouseover", (e) => { const n = e.target.closest && e.target.closest("i[data-g]"); if (n) light(n); });
document.addEventListener("focusin", (e) => { const l = e.target.closest && e.target.closest(".l[data-g]"); if (l) light(l); else dim(); });
document.addEventListener("mouseout", (e) => { if (e.target.closest && e.target.closest("i[data-g]")) dim(); });

// The two ends of a verdict, joined.
let joined = null;
const NS = "http://www.w3.org/2000/svg";
const join = () => {
  for (const s of all("svg.link")) s.remove();
  if (!joined) return;
  const ends = joined.dataset.e.split(" ").map((id) => document.getElementById(id)).filter(Boolean);
  for (const f of new Set(ends.map((l) => l.closest(".src")))) {
    const mine = ends.filter((l) => f.contains(l));
    if (mine.length < 2) continue;
    const top = f.getBoundingClientRect().top, at = mine.map((l) => l.getBoundingClientRect().top - top + 10);
    const s = document.createElementNS(NS, "svg"); s.setAttribute("class", "link"); s.setAttribute("aria-hidden", "true");
    const p = document.createElementNS(NS, "path");
    p.setAttribute("d", at.slice(1).map((y) => "M14 " + at[0] + "C2 " + at[0] + " 2 " + y + " 14 " + y).join(""));
    s.append(p);
    for (const y of at) { const c = document.createElementNS(NS, "circle"); c.setAttribute("cx", 14); c.setAttribute("cy", y); c.setAttribute("r", 3.5); s.append(c); }
    f.append(s);
  }
};
const open = new Map(verdicts.map((v) => [v, v.open]));
for (const v of verdicts) v.addEventListener("toggle", () => {
  if (open.get(v) === v.open) return; // a browser also tells of what was open from the start
  open.set(v, v.open);
  if (v.open) joined = v; else if (joined === v) joined = null;
  if (joined) for (const id of joined.dataset.e.split(" ")) { const l = document.getElementById(id); const f = l && l.closest("details.file"); if (f) f.open = true; }
  join();
});
joined = verdicts.length && verdicts[0].open ? verdicts[0] : null;
join();
addEventListener("resize", join);
document.addEventListener("toggle", (e) => { if (e.target.matches && e.target.matches("details.m,details.file")) join(); }, true);

// A link to something folded opens what it lies in.
const reveal = () => {
  const to = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!to) return;
  let moved = false;
  for (let d = to; d; d = d.parentElement) if (d.tagName === "DETAILS" && !d.open) { d.open = true; moved = true; }
  if (!moved && !to.closest(".b")) return;
  const go = () => to.scrollIntoView({block: "center"});
  go();
  requestAnimationFrame(() => requestAnimationFrame(go)); // what was folded has its height by then
};
addEventListener("hashchange", reveal); reveal();
// In a notebook's frame a link would lead to the page around: its address is what links start from.
if (location.protocol === "about:") document.addEventListener("click", (e) => {
  const a = e.target.closest && e.target.closest('a[href^="#"]');
  if (a) { e.preventDefault(); location.hash = a.getAttribute("href"); }
});
one("#unfold").addEventListener("click", () => { const all = verdicts.some((v) => !v.hidden && !v.open); for (const v of verdicts) if (!v.hidden) v.open = all; });
for (const z of all("button.zoomer")) z.addEventListener("click", () => { const box = z.parentElement.nextElementSibling; const n = box.classList.contains("z2") ? "z3" : box.classList.contains("z3") ? "" : "z2"; box.classList.remove("z2", "z3"); if (n) box.classList.add(n); });
let folded = [];
addEventListener("beforeprint", () => { folded = verdicts.filter((v) => !v.open && !v.hidden); for (const v of folded) v.open = true; });
addEventListener("afterprint", () => { for (const v of folded) v.open = false; });

// Keys.
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "Escape") { search.value = ""; slug.value = ""; file.value = ""; filter(); dim(); e.target.blur && e.target.blur(); return; }
  if (/INPUT|SELECT|TEXTAREA/.test(e.target.tagName)) return;
  if (e.key === "/") { e.preventDefault(); search.focus(); }
  else if (e.key === "t") turn();
  else if (e.key === "j" || e.key === "k") {
    const seen = verdicts.filter((v) => !v.hidden), now = seen.indexOf(document.activeElement.closest("details.v"));
    const next = seen[e.key === "j" ? Math.min(now + 1, seen.length - 1) : Math.max(now - 1, 0)];
    if (next) { next.firstElementChild.focus(); next.scrollIntoView({block: "nearest"}); }
  }
});
})();
