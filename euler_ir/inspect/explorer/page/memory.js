// The arena over the phases of the step: what lies where, for how long, and who holds most of it at the peak.

definePane({
  name: "memory",
  title: "Memory",
  slot: "below",
  linked: (flags) => sum(flags.buffer),

  build(pane) {
    const { buffers } = model.plan;
    pane.arena = [...buffers.keys()].filter((number) => buffers[number].place === "arena" && buffers[number].bytes);
    pane.peak = peakOf(pane.arena);
    pane.chart = element("div", { class: "arena" });
    pane.about = element("div", { class: "about" });
    pane.list = new WindowedList("Buffers", {
      height: 22,
      classes: (row) => highlight("buffer", pane.rows[row]),
      render: (row) => renderBuffer(pane, pane.rows[row]),
      choose: (row) => choose("buffer", pane.rows[row]),
    });
    pane.which = element(
      "select",
      { "aria-label": "Buffers shown", on: { change: () => showBuffers(pane) } },
      element("option", { value: "peak" }, "at the peak"),
      element("option", { value: "all" }, "all buffers"),
    );
    pane.tools.append(pane.which);
    pane.body.append(pane.chart, pane.about, pane.list.root);
    drawArena(pane);
    showBuffers(pane);
  },

  update(pane, changed) {
    if (!changed.has("select")) return;
    for (const box of pane.chart.querySelectorAll("rect[data-buffer]")) {
      box.setAttribute("class", `held ${highlight("buffer", Number(box.dataset.buffer))}`);
    }
    const linked = [...pane.chart.querySelectorAll("rect.linked, rect.chosen")];
    linked.forEach((box) => box.parentNode.append(box)); // drawn last, so that they are seen
    pane.list.draw();
    if (selection.thing)
      pane.list.reveal(pane.rows.flatMap((buffer, row) => (selection.flags.buffer[buffer] ? [row] : [])));
  },
});

/** The phase in which most bytes of the arena are in use, and how many; what lies in one place counts once. */
function peakOf(arena) {
  const { buffers } = model.plan;
  let peak = { phase: 0, bytes: 0 };
  for (let phase = 0; phase <= model.figures.phases; phase++) {
    const places = new Map();
    for (const number of arena) {
      const { first, last, offset, bytes } = buffers[number];
      if (first <= phase && phase <= last) places.set(offset, Math.max(bytes, places.get(offset) ?? 0));
    }
    const held = [...places.values()].reduce((total, bytes) => total + bytes, 0);
    if (held > peak.bytes) peak = { phase, bytes: held };
  }
  return peak;
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
    { class: "peak", style: `left:${((pane.peak.phase + 0.5) / phases) * 100}%` },
    element("span", {}, `peak, phase ${pane.peak.phase}`),
  );
  if (pane.peak.phase > phases / 2) peak.classList.add("late");
  pane.chart.replaceChildren(chart, peak);
}

function showBuffers(pane) {
  const { buffers } = model.plan;
  const { phase, bytes } = pane.peak;
  const isPeak = pane.which.value === "peak";
  pane.rows = isPeak
    ? pane.arena.filter((number) => buffers[number].first <= phase && phase <= buffers[number].last)
    : [...buffers.keys()];
  pane.rows.sort((a, b) => buffers[b].bytes - buffers[a].bytes || a - b);
  pane.most = Math.max(1, ...pane.rows.map((number) => buffers[number].bytes));
  const outside = ["parameter", "state", "input", "output", "constant"].flatMap((place) => {
    const held = buffers.reduce((total, buffer) => total + (buffer.place === place ? buffer.bytes : 0), 0);
    return held ? [`${place} ${readableBytes(held)}`] : [];
  });
  pane.about.replaceChildren(
    element("b", {}, `arena ${readableBytes(model.figures.arena)}`),
    element("span", {}, `${readableBytes(bytes)} in use at the peak`),
    element("span", { class: "aside", title: outside.join(", ") }, outside.slice(0, 2).join(", ")),
  );
  pane.list.setCount(pane.rows.length);
}

function renderBuffer(pane, number) {
  const { name, type, bytes, place } = model.plan.buffers[number];
  return [
    element("span", { class: "kernel-name", title: name }, name),
    element("code", { class: "aside" }, place === "arena" ? type : `${place} ${type}`),
    element("span", { class: "cost", style: `--share:${(bytes / pane.most).toFixed(3)}` }, readableBytes(bytes)),
  ];
}
