// What is selected and shown. The fragment of the address says it all, so that links and the back button work.

const DEFAULTS = {
  select: "",
  stage: "0",
  view: "text",
  metric: "",
  right: "kernels",
  below: "memory",
  code: "loops",
  whole: "",
};

const state = { ...DEFAULTS };
const watchers = [];
let shownFragment = null;

/** `watch(change)` is called after each change with the names of what changed, and with all of them at the start. */
function onChange(watch) {
  watchers.push(watch);
}

function setState(changes) {
  const next = { ...state, ...changes };
  const said = new URLSearchParams();
  for (const name of Object.keys(DEFAULTS)) if (next[name] !== DEFAULTS[name]) said.set(name, next[name]);
  const fragment = said.toString().replaceAll("%3A", ":").replaceAll("%2F", "/");
  if (fragment === shownFragment) return;
  location.hash = fragment; // "hashchange" comes later, and finds nothing left to do
  readFragment();
}

function readFragment() {
  const fragment = location.hash.slice(1);
  if (fragment === shownFragment) return;
  const isFirst = shownFragment === null;
  shownFragment = fragment;
  const said = new URLSearchParams(fragment);
  const changed = new Set();
  for (const name of Object.keys(DEFAULTS)) {
    const value = said.get(name) ?? DEFAULTS[name];
    if (isFirst || value !== state[name]) changed.add(name);
    state[name] = value;
  }
  for (const watch of watchers) watch(changed);
}

addEventListener("hashchange", readFragment);
