// A page that is served: it asks whether there is a later one, and shows it to who reads nothing yet.
(() => {
"use strict";
const shown = +document.body.dataset.version, bar = document.createElement("p"), words = document.createElement("span"), button = document.createElement("button");
bar.id = "live"; bar.setAttribute("role", "status"); button.type = "button"; button.textContent = "show what is new"; button.title = "key: r"; button.hidden = true;
bar.append(words, " ", button); document.querySelector("header").append(bar);
let touched = false;
for (const what of ["pointerdown", "keydown", "wheel"]) addEventListener(what, () => { touched = true; }, {passive: true});
const again = () => location.reload();
button.addEventListener("click", again);
document.addEventListener("keydown", (e) => { if (e.key === "r" && !button.hidden && !e.ctrlKey && !e.metaKey && !/INPUT|SELECT/.test(e.target.tagName)) again(); });
const count = (n, what) => n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");
const said = {
  running: (s) => "The program is running: " + count(s.findings, "finding") + " in " + count(s.calls, "call") + " so far.",
  partial: () => "A part of a recording: it goes on as the file grows.",
  ended: () => "",
};
const ask = async () => {
  let state;
  try { state = await (await fetch("state")).json(); } catch { words.textContent = "tether view has ended; this page stays as it is."; button.hidden = true; return; }
  if (state.version !== shown && !touched) { again(); return; }
  words.textContent = said[state.state](state); button.hidden = state.version === shown;
  setTimeout(ask, 1000);
};
ask();
})();
