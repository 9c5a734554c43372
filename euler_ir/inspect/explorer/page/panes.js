// A pane: a part of the page about one side of the step. Panes that share a slot are its tabs.

const panes = [];

/** `slot` is where it stands: one that other panes have too makes tabs, of which `state[slot]` says the shown one.
 *  `build(pane)` fills `pane.body` and `pane.tools` when it is first shown, `update(pane, changed)` follows the state,
 *  and `linked(flags)` counts what the selection lights up. */
function definePane(definition) {
  panes.push({ ...definition, isBuilt: false });
}

const isTabbed = (slot) => slot in DEFAULTS;
const isShown = (pane) => !isTabbed(pane.slot) || state[pane.slot] === pane.name;

function buildSlots() {
  for (const slot of new Set(panes.map((pane) => pane.slot))) {
    const members = panes.filter((pane) => pane.slot === slot);
    const root = byId(`slot-${slot}`);
    const tabs = element("div", { class: "tabs", role: isTabbed(slot) ? "tablist" : null });
    const tools = element("div", { class: "tools" });
    root.append(element("header", {}, tabs, tools, enlargeButton(slot)));
    for (const pane of members) {
      pane.count = element("span", { class: "count", "aria-label": "linked to the selection" });
      pane.tab = isTabbed(slot)
        ? element(
            "button",
            {
              role: "tab",
              id: `tab-${pane.name}`,
              "aria-controls": `pane-${pane.name}`,
              on: {
                click: () => setState({ [slot]: pane.name }),
                keydown: (event) => moveInTabs(event, members),
              },
            },
            pane.title,
            pane.count,
          )
        : element("h2", { id: `tab-${pane.name}` }, pane.title, pane.count);
      tabs.append(pane.tab);
      pane.tools = element("div", { class: "tools-of" });
      tools.append(pane.tools);
      pane.body = element("div", {
        class: "body",
        id: `pane-${pane.name}`,
        role: isTabbed(slot) ? "tabpanel" : "region",
        "aria-labelledby": `tab-${pane.name}`,
      });
      root.append(pane.body);
    }
  }
}

function moveInTabs(event, members) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const now = members.findIndex((pane) => pane.tab === event.currentTarget);
  const next = members[(now + step + members.length) % members.length];
  next.tab.focus();
  next.tab.click();
}

function enlargeButton(slot) {
  return element(
    "button",
    {
      class: "quiet enlarge",
      title: "Enlarge, or put back (m)",
      "aria-label": `Enlarge ${slot}`,
      on: {
        click: () => setState({ whole: state.whole === slot ? "" : slot }),
      },
    },
    "⤢",
  );
}

function updatePanes(changed) {
  document.body.dataset.whole = state.whole;
  for (const slot of document.querySelectorAll(".slot"))
    slot.classList.toggle("whole", slot.id === `slot-${state.whole}`);
  for (const pane of panes) {
    const shown = isShown(pane);
    pane.body.hidden = pane.tools.hidden = !shown;
    if (isTabbed(pane.slot)) {
      pane.tab.setAttribute("aria-selected", String(shown));
      pane.tab.tabIndex = shown ? 0 : -1;
    }
    const linked = selection.thing ? (pane.linked?.(selection.flags) ?? 0) : 0;
    pane.count.textContent = linked ? readableCount(linked) : "";
    if (!shown) continue;
    const isFirst = !pane.isBuilt;
    if (isFirst) pane.ready = pane.build(pane);
    pane.isBuilt = true;
    pane.update(pane, isFirst || changed.has(pane.slot) ? new Set(Object.keys(DEFAULTS)) : changed);
  }
}

const sum = (flags) => flags.reduce((total, flag) => total + flag, 0);

/** Classes of a row that shows the thing `number` of `kind`. */
function highlight(kind, number) {
  if (!selection.thing || number < 0) return "";
  if (selection.thing.kind === kind && selection.thing.number === number) return "chosen";
  return selection.flags[kind][number] ? "linked" : "";
}

/** A button that selects a thing, called as readers know it. */
function link(kind, number, text = model.kinds[kind].label(number)) {
  return element(
    "button",
    {
      class: `link ${highlight(kind, number)}`,
      title: model.kinds[kind].label(number),
      "data-kind": kind,
      on: {
        click: (event) => {
          event.stopPropagation();
          choose(kind, number);
        },
      },
    },
    ...breakable(text),
  );
}

/** `text` that may go on in the next line after each point and underscore. */
function breakable(text) {
  return text.split(/(?<=[._/])/).flatMap((word, at) => (at ? [element("wbr"), word] : [word]));
}

/** Buttons of which one is pressed: `options` are pairs of a value and its text. */
function segmented(label, options, now, set) {
  return element(
    "div",
    { class: "segmented", role: "group", "aria-label": label },
    ...options.map(([value, text]) =>
      element(
        "button",
        { "aria-pressed": String(value === now), "data-value": value, on: { click: () => set(value) } },
        text,
      ),
    ),
  );
}

/** A note in the place of content that is not there. */
const note = (...text) => element("p", { class: "note" }, ...text);
