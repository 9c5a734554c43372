// Sizes of the panes, light and dark, and the keys.

const KEYS = [
  ["/", "search names, operators, lines, layers, kernels, buffers"],
  ["↑ ↓", "move in a list; Enter selects"],
  ["← →", "close or open a layer; the tab beside"],
  ["Tab", "to the next pane or button"],
  ["[ ]", "the stage before, the stage after"],
  ["d", "the stage as text or as what changed"],
  ["m", "enlarge the pane that has the focus, or put it back"],
  ["t", "light or dark"],
  ["Esc", "close; else nothing is selected any more"],
  ["?", "these keys"],
];

/** A bar between two parts, dragged or moved with the arrow keys: it sets a property of what holds it, in percent. */
function buildResizer(bar) {
  const { property, axis, reverse } = bar.dataset;
  const holder = bar.parentElement;
  const isX = axis === "x";
  const now = () => parseFloat(getComputedStyle(holder).getPropertyValue(property));
  const set = (percent) => {
    const kept = Math.max(8, Math.min(85, percent));
    holder.style.setProperty(property, `${kept}%`);
    bar.setAttribute("aria-valuenow", String(Math.round(kept)));
  };
  bar.setAttribute("aria-valuenow", String(Math.round(now())));
  bar.addEventListener("pointerdown", (event) => {
    bar.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  bar.addEventListener("pointermove", (event) => {
    if (!bar.hasPointerCapture(event.pointerId)) return;
    const box = holder.getBoundingClientRect();
    const part = isX ? (event.clientX - box.left) / box.width : (event.clientY - box.top) / box.height;
    set(100 * (reverse ? 1 - part : part));
  });
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -2, ArrowUp: -2, ArrowRight: 2, ArrowDown: 2 }[event.key];
    if (!step) return;
    set(now() + (reverse ? -step : step));
    event.preventDefault();
  });
}

/** Light and dark follow the system until the button was used. */
function toggleTheme() {
  const { dataset } = document.documentElement;
  const isDark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = isDark ? "light" : "dark";
}

function buildHelp() {
  byId("help-keys").append(
    ...KEYS.flatMap(([key, meaning]) => [
      element("dt", {}, ...key.split(" ").map((one) => element("kbd", {}, one))),
      element("dd", {}, meaning),
    ]),
  );
}

function onKey(event) {
  const isTyping = event.target.matches?.("input, select") && event.target.checkVisibility();
  if (document.querySelector("dialog[open]") || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const stage = Number(state.stage);
  const actions = {
    "/": openSearch,
    "?": () => byId("help").showModal(),
    "[": () => setState({ stage: String(Math.max(0, stage - 1)) }),
    "]": () => setState({ stage: String(Math.min(model.figures.stages - 1, stage + 1)) }),
    d: () => setState({ view: state.view === "diff" ? "text" : "diff" }),
    t: toggleTheme,
    m: enlargeFocused,
    Escape: () => setState(state.whole ? { whole: "" } : { select: "" }),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

function enlargeFocused() {
  const slot = document.activeElement.closest(".slot")?.id.replace("slot-", "") ?? "stages";
  setState({ whole: state.whole ? "" : slot });
}

/** The cost that is shown beside lines and layers. */
function buildMetric() {
  const known = Object.entries(METRICS)
    .filter(([name]) => model.values[name])
    .map(([name, { title }]) => [name, title]);
  onChange((changed) => {
    if (changed.has("metric"))
      byId("metric").replaceChildren(segmented("Cost", known, metric(), (name) => setState({ metric: name })));
  });
}

function buildLayout() {
  for (const bar of document.querySelectorAll(".resizer")) buildResizer(bar);
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }
  byId("search-open").addEventListener("click", openSearch);
  byId("theme").addEventListener("click", toggleTheme);
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  addEventListener("keydown", onKey);
  buildHelp();
  buildSearch();
}
