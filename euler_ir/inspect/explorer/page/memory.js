// The arena over the phases of the step: what lies where, for how long, and who holds most of it at the peak.

definePane({
  name: "memory",
  title: "Memory",
  slot: "below",
  linked: (flags) => sum(flags.buffer),

  async build(pane) {
    const { buffers } = model.plan;
    pane.report = await part("memory");
    pane.arena = [...buffers.keys()].filter((number) => buffers[number].place === "arena" && buffers[number].bytes);
    pane.chart = element("div", { class: "arena" });
    pane.about = element("div", { class: "about" });
    pane.list = new WindowedList("Buffers", {
      height: 22,
      classes: (row) => highlight(...pane.shown.thing(pane.rows[row])),
      render: (row) => pane.shown.render(pane, pane.rows[row]),
      choose: (row) => choose(...pane.shown.thing(pane.rows[row])),
    });
    pane.which = element(
      "select",
      { "aria-label": "Listed", on: { change: () => listMemory(pane) } },
      ...Object.entries(MEMORY_LISTS).map(([name, { title }]) => element("option", { value: name }, title)),
    );
    pane.tools.append(pane.which);
    pane.body.append(pane.chart, pane.about, pane.list.root);
    drawArena(pane);
    listMemory(pane);
    markMemory(pane);
  },

  update(pane, changed) {
    if (pane.report && changed.has("select")) markMemory(pane);
  },
});

/** What the list can show: its rows, the thing that each is about, and how it is drawn. */
const MEMORY_LISTS = {
  peak: {
    title: "at the peak",
    rows: ({ report }) => report.at_peak,
    thing: (row) => ["buffer", row],
    render: renderBuffer,
  },
  lines: {
    title: "at the peak, by line",
    rows: ({ report }) => report.holders,
    thing: ({ line }) => ["line", line],
    render: renderHolder,
  },
  all: { title: "all buffers", rows: allBuffers, thing: (row) => ["buffer", row], render: renderBuffer },
  decisions: {
    title: "in place or not",
    rows: allDecisions,
    thing: ({ value }) => ["value", value],
    render: renderDecision,
  },
};

function markMemory(pane) {
  for (const box of pane.chart.querySelectorAll("rect[data-buffer]")) {
    box.setAttribute("class", `held ${highlight("buffer", Number(box.dataset.buffer))}`);
  }
  const linked = [...pane.chart.querySelectorAll("rect.linked, rect.chosen")];
  linked.forEach((box) => box.parentNode.append(box)); // drawn last, so that they are seen
  pane.list.draw();
  pane.list.reveal(pane.rows.flatMap((thing, row) => (highlight(...pane.shown.thing(thing)) ? [row] : [])));
}

function drawArena(pane) {
  const { buffers } = model.plan;
  const [phases, size] = [model.figures.phases + 1, model.figures.arena];
  if (!pane.arena.length)
    return pane.chart.replaceChildren(
      note("This step keeps nothing in the arena: all that it makes is an output or an update."),
    );
  const chart = drawing("svg", {
    viewBox: `0 0 ${phases} 1000`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": `The arena over ${phases - 1} phases; the list below has what it holds`,
  });
  for (const number of pane.arena) {
    const { first, last, offset, bytes, name, type } = buffers[number];
    const box = drawing(
      "rect",
      {
        class: "held",
        "data-buffer": number,
        x: first,
        width: last - first + 1,
        y: 1000 - ((offset + bytes) / size) * 1000,
        height: (bytes / size) * 1000,
        on: { click: () => choose("buffer", number) },
      },
      drawing("title", {}, `${name}: ${type}, ${readableBytes(bytes)}, phases ${first} to ${last}`),
    );
    chart.append(box);
  }
  const peak = element(
    "i",
    { class: "peak", style: `left:${((pane.report.peak + 0.5) / phases) * 100}%` },
    element("span", {}, `peak, phase ${pane.report.peak}`),
  );
  if (pane.report.peak > phases / 2) peak.classList.add("late");
  pane.chart.replaceChildren(chart, peak);
}

function listMemory(pane) {
  pane.shown = MEMORY_LISTS[pane.which.value];
  pane.rows = pane.shown.rows(pane);
  pane.most = Math.max(1, ...pane.rows.map((row) => row.bytes ?? model.plan.buffers[row].bytes));
  const outside = ["parameter", "state", "input", "output", "constant"].flatMap((place) => {
    const held = model.plan.buffers.reduce((total, buffer) => total + (buffer.place === place ? buffer.bytes : 0), 0);
    return held ? [`${place} ${readableBytes(held)}`] : [];
  });
  pane.about.replaceChildren(
    element("b", {}, `arena ${readableBytes(model.figures.arena)}`),
    element("span", {}, `least possible ${readableBytes(pane.report.least)}`),
    element("span", { class: "aside", title: outside.join(", ") }, outside.slice(0, 2).join(", ")),
  );
  pane.list.setCount(pane.rows.length);
}

function allBuffers() {
  const { buffers } = model.plan;
  return [...buffers.keys()].sort((a, b) => buffers[b].bytes - buffers[a].bytes || a - b);
}

/** Decisions on places, those that found none first, and of these the largest. */
function allDecisions({ report }) {
  const { value, source, kind, bytes, reason } = report.decisions;
  const rows = [...value.keys()].map((at) => ({
    value: value[at],
    source: source[at],
    kind: kind[at],
    bytes: bytes[at],
    reason: report.reasons[reason[at]],
  }));
  return rows.sort((a, b) => Boolean(b.reason) - Boolean(a.reason) || b.bytes - a.bytes || a.value - b.value);
}

const memoryCost = (pane, bytes) =>
  element("span", { class: "cost", style: `--share:${(bytes / pane.most).toFixed(3)}` }, readableBytes(bytes));

function renderBuffer(pane, number) {
  const { name, type, bytes, place } = model.plan.buffers[number];
  return [
    element("span", { class: "kernel-name", title: heldFor(pane, number) }, name),
    element("code", { class: "aside" }, place === "arena" ? type : `${place} ${type}`),
    memoryCost(pane, bytes),
  ];
}

const heldFor = (pane, number) =>
  pane.report.held_for[number] ? `until it is read by ${pane.report.held_for[number]}` : "";

function renderHolder(pane, { line, buffers, bytes }) {
  return [
    element("span", { class: "kernel-name" }, line < 0 ? "no line" : model.kinds.line.label(line)),
    element("span", { class: "aside" }, plural(buffers, "buffer")),
    memoryCost(pane, bytes),
  ];
}

function renderDecision(pane, { value, source, bytes, reason }) {
  const into = source >= 0 ? ` over ${model.values.name[source]}` : "";
  const said = reason ? `not in place${into}: ${reason.why}` : `in place${into}`;
  return [
    element("code", {}, valueName(model.values.name[value])),
    element("span", { class: "kernel-name aside", title: reason?.hint ?? "" }, said),
    memoryCost(pane, bytes),
  ];
}
