// Every kernel once: what it moves and computes, how near it comes to what the machine can do, and its code.

const CODE_VIEWS = { loops: ["Loop IR", "graph"], llvm: ["LLVM IR", "llvm"], assembly: ["Assembly", "asm"] };

definePane({
  name: "kernels",
  title: "Kernels",
  slot: "right",
  linked: (flags) => sum(flags.kernel),

  async build(pane) {
    pane.chart = element("div", { class: "roofline" });
    pane.list = new WindowedList("Kernels", {
      height: 24,
      classes: (row) => highlight("kernel", pane.order[row]),
      render: (row) => renderKernel(pane, pane.order[row]),
      choose: (row) => choose("kernel", pane.order[row]),
    });
    pane.head = element("div", { class: "code-head" });
    pane.lines = [];
    pane.code = new WindowedList("Code of the kernel", {
      height: 18,
      classes: () => "code-row",
      render: (row) => [
        element("span", { class: "number" }, String(row + 1)),
        element("code", {}, ...painted(pane.lines[row], pane.language)),
      ],
      choose: () => {},
    });
    pane.body.append(pane.chart, element("div", { class: "kernel-list" }, pane.list.root), pane.head, pane.code.root);
    pane.generated = await part("code");
    showCode(pane);
  },

  update(pane, changed) {
    if (changed.has("metric")) orderKernels(pane);
    if (changed.has("metric") || changed.has("select")) {
      drawRoofline(pane);
      pane.list.draw();
      if (selection.thing)
        pane.list.reveal(pane.order.flatMap((kernel, row) => (selection.flags.kernel[kernel] ? [row] : [])));
    }
    if (pane.generated) showCode(pane);
  },
});

const kernelMoves = ({ read, written }) => read + written;

/** All launches of a kernel together, by the metric that is shown. */
function kernelCost(kernel) {
  if (metric() === "seconds") return kernel.seconds ?? 0;
  return kernel.launches * (metric() === "bytes" ? kernelMoves(kernel) : kernel.flops);
}

function orderKernels(pane) {
  const costs = model.plan.kernels.map(kernelCost);
  pane.costs = costs;
  pane.most = Math.max(0, ...costs);
  pane.order = [...costs.keys()].sort((a, b) => costs[b] - costs[a] || a - b);
  pane.list.setCount(pane.order.length);
}

/** The loops of a kernel, which tell apart those of one name; the name of a product says its sizes itself. */
function extentOf({ kind, groups }) {
  const frame = kind === "kernel" && groups.length ? model.plan.groups[groups[0]].frame : [];
  return element("span", { class: "aside" }, frame.length ? `  ${frame.join(" × ")}` : "");
}

function renderKernel(pane, number) {
  const kernel = model.plan.kernels[number];
  return [
    element("span", { class: "launches", title: plural(kernel.launches, "call") }, `${kernel.launches}×`),
    element("span", { class: "kernel-name", title: kernel.name }, kernel.name, extentOf(kernel)),
    costCell(pane.costs[number], pane.most ? pane.costs[number] / pane.most : 0),
  ];
}

/** The kernel whose code is shown: the one that is selected, else the costliest that is linked, else of all. */
function shownKernel(pane) {
  if (selection.thing?.kind === "kernel") return selection.thing.number;
  return pane.order.find((kernel) => selection.thing && selection.flags.kernel[kernel]) ?? pane.order[0];
}

function showCode(pane) {
  const number = shownKernel(pane);
  const [, language] = CODE_VIEWS[state.code] ?? CODE_VIEWS.loops;
  const shown = `${number} ${state.code}`;
  if (pane.shown === shown) return;
  pane.shown = shown;
  pane.language = language;
  pane.lines = number === undefined ? [] : codeOf(pane, number).split("\n");
  pane.head.replaceChildren(
    element(
      "b",
      { title: number === undefined ? "" : model.plan.kernels[number].name },
      number === undefined ? "no kernel" : model.plan.kernels[number].name,
    ),
    segmented(
      "Code",
      Object.entries(CODE_VIEWS).map(([view, [title]]) => [view, title]),
      state.code,
      (code) => setState({ code }),
    ),
  );
  pane.code.root.scrollTop = pane.code.root.scrollLeft = 0;
  pane.code.setCount(pane.lines.length);
}

function codeOf(pane, number) {
  const { loops, modules, symbol } = pane.generated;
  const isCopy = model.plan.kernels[number].isCopy;
  if (!CODE_VIEWS[state.code] || state.code === "loops") {
    return loops[number].trimEnd() || `// no loops of the Loop IR${isCopy ? "" : ": see the LLVM IR"}`;
  }
  const texts = modules[number].map((module) => {
    const text = pane.generated[state.code][module].trim();
    return modules[number].length > 1 ? `; ${symbol[module]}\n${text}` : text;
  });
  return (
    texts.join("\n\n") ||
    (isCopy ? "; a copy is a call of memcpy" : "; this product is left to OpenBLAS, or has nothing to do")
  );
}

/** Kernels as dots over their FLOPs by byte: at the rate that they reached below the roof, or on a line when nothing
 *  was measured. */
function drawRoofline(pane) {
  const { ceilings } = model.figures;
  const dots = model.plan.kernels.flatMap((kernel, number) =>
    kernel.flops && kernelMoves(kernel) ? [{ number, kernel, x: kernel.flops / kernelMoves(kernel) }] : [],
  );
  if (!dots.length) return pane.chart.replaceChildren();
  const [width, height, left, bottom] = [460, ceilings ? 150 : 54, ceilings ? 44 : 14, 30];
  const span = [
    Math.floor(Math.log10(Math.min(...dots.map((dot) => dot.x), 1))),
    Math.ceil(Math.log10(Math.max(...dots.map((dot) => dot.x), 10))),
  ];
  const atX = (x) => left + ((Math.log10(x) - span[0]) / (span[1] - span[0])) * (width - left - 12);
  const bandwidth = ceilings && Math.max(ceilings.read, ceilings.triad);
  const top = ceilings && Math.log10(ceilings.fma) + 0.25;
  const low = ceilings && Math.min(top - 2, Math.log10(bandwidth * 10 ** span[0]));
  const atY = (y) =>
    ceilings ? 8 + ((top - Math.log10(Math.max(y, 10 ** low))) / (top - low)) * (height - bottom - 12) : 16;
  const rate = ({ kernel }) => (kernel.slowest ? (kernel.flops * kernel.launches) / kernel.slowest / 1e9 : 1);
  const chart = drawing("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": "FLOPs by byte of each kernel",
  });
  for (let power = span[0]; power <= span[1]; power++) {
    chart.append(
      drawing("line", { class: "grid", x1: atX(10 ** power), x2: atX(10 ** power), y1: 6, y2: height - bottom }),
      drawing(
        "text",
        { x: atX(10 ** power), y: height - bottom + 13, "text-anchor": "middle" },
        String(power < 0 ? (10 ** power).toPrecision(1) : 10 ** power),
      ),
    );
  }
  chart.append(drawing("text", { x: width - 12, y: height - 4, "text-anchor": "end" }, "FLOPs by byte"));
  if (ceilings) {
    const ridge = ceilings.fma / bandwidth;
    const [from, to] = [10 ** span[0], 10 ** span[1]];
    const roof = [
      [from, bandwidth * from],
      [ridge, ceilings.fma],
      [to, ceilings.fma],
    ]
      .map(([x, y]) => `${atX(x)},${atY(y)}`)
      .join(" ");
    chart.append(
      drawing("polyline", { class: "roof", points: roof }),
      drawing(
        "text",
        { x: atX(ridge) - 6, y: atY(ceilings.fma) - 3, "text-anchor": "end" },
        `${ceilings.fma.toFixed(0)} GFLOP/s`,
      ),
      drawing("text", { x: 4, y: atY(bandwidth * from * 2.2) - 5 }, `${bandwidth.toFixed(0)} GB/s`),
    );
  }
  const largest = Math.max(...dots.map(({ kernel }) => kernelCost(kernel)), 1e-300);
  const rank = (number) => (highlight("kernel", number) === "chosen" ? 2 : highlight("kernel", number) ? 1 : 0);
  for (const dot of dots.sort((a, b) => rank(a.number) - rank(b.number))) {
    const radius = 2.5 + 7 * Math.sqrt(kernelCost(dot.kernel) / largest);
    const reached = ceilings ? `, ${rate(dot).toPrecision(3)} GFLOP/s` : "";
    chart.append(
      drawing(
        "circle",
        {
          class: `dot ${highlight("kernel", dot.number)}`,
          cx: atX(dot.x),
          cy: atY(rate(dot)),
          r: radius,
          on: { click: () => choose("kernel", dot.number) },
        },
        drawing("title", {}, `${dot.kernel.name}: ${dot.x.toPrecision(3)} FLOPs by byte${reached}`),
      ),
    );
  }
  pane.chart.replaceChildren(chart);
}
