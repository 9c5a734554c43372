// All that is known of what is selected, each fact a way to go on.

const MOST_LINKS = 24;

definePane({
  name: "details",
  title: "Selection",
  slot: "details",

  async build(pane) {
    [reasonsFor.fusion, reasonsFor.memory] = await Promise.all([part("fusion"), part("memory")]);
    showDetails(pane);
  },

  update(pane, changed) {
    if (reasonsFor.fusion && (changed.has("select") || changed.has("metric"))) showDetails(pane);
  },
});

/** The parts that say why; what is selected is described once they are there. */
const reasonsFor = { fusion: null, memory: null };

function showDetails(pane) {
  pane.body.replaceChildren(...(selection.thing ? describe(selection.thing) : overview()));
  pane.body.scrollTop = 0;
}

function describe({ kind, number }) {
  const numbers = [...new Set(model.kinds[kind].values(number))];
  const costs = kind === "kernel" ? kernelCosts(number) : costFacts(numbers);
  const facts = [...FACTS[kind](number), ...costs, ...linkFacts(kind)];
  return [
    element("p", { class: "kind" }, KIND_NAMES[kind]),
    element("h3", {}, ...breakable(model.kinds[kind].label(number))),
    factList(facts),
  ];
}

const KIND_NAMES = {
  value: "Value",
  line: "Line",
  layer: "Layer",
  group: "Fused group",
  step: "Step of the plan",
  kernel: "Kernel",
  buffer: "Buffer",
  rule: "Rule",
};

/** Pairs of a word and what it says; what says nothing is left out. */
function factList(facts) {
  const rows = facts.filter(([, said]) => said !== null && said !== "" && said?.length !== 0);
  return element(
    "dl",
    {},
    ...rows.flatMap(([word, said]) => [
      element("dt", {}, word),
      element("dd", {}, ...(Array.isArray(said) ? said : [said])),
    ]),
  );
}

function links(kind, numbers) {
  // What many have in common with each other is said once, above: their numbers are enough.
  const isShort = numbers.length > 3 && ["step", "group", "buffer"].includes(kind);
  const some = numbers.slice(0, MOST_LINKS).map((number) => link(kind, number, isShort ? String(number) : undefined));
  const more = numbers.length - MOST_LINKS;
  if (more > 0) some.push(element("span", { class: "aside" }, `and ${readableCount(more)} more`));
  return some;
}

const FACTS = {
  value(number) {
    const { operator, type, operands, first, last, via, became } = model.values;
    const users = model.standsFor(number).flatMap((each) => model.users[each]);
    return [
      ["operator", element("code", {}, operator[number])],
      ["type", element("code", {}, type[number])],
      ["made by", via?.[number].join(", ") ?? ""],
      ["stages", `${first[number]} to ${last[number]}`],
      ["then", became[number] < 0 ? "" : link("value", became[number])],
      ["operands", links("value", operands[number])],
      ["read by", links("value", [...new Set(users)])],
      ["unfused to", throughMemory(number)],
      ["lies", memoryOf(number)],
    ];
  },
  line(number) {
    const { files, lines } = model.places;
    const file = files[lines.file[number]];
    return [
      ["file", file.path],
      ["text", element("code", {}, (file.text?.[lines.line[number] - 1] ?? "").trim())],
    ];
  },
  layer: (number) => [["layers inside", model.layers.hasChildren[number] ? links("layer", childrenOf(number)) : ""]],
  group(number) {
    const group = model.plan.groups[number];
    return [
      ["kind", group.kind],
      [
        "loops",
        group.frame.length
          ? `${group.frame.join(" × ")}${group.reduced.length ? `, summed over axis ${group.reduced.join(", ")}` : ""}`
          : "",
      ],
      ["runs inside of", group.inside === null ? "" : link("value", group.inside)],
      ["reads", links("value", group.reads)],
      ["writes", links("value", group.writes)],
    ];
  },
  step(number) {
    const step = model.plan.steps[number];
    return [
      ["phase", String(step.phase)],
      ["groups", links("group", step.groups)],
    ];
  },
  kernel(number) {
    const { launches, kind, read, written, flops, slowest, steps } = model.plan.kernels[number];
    const { ceilings } = model.figures;
    const least =
      ceilings && Math.max((read + written) / Math.max(ceilings.read, ceilings.triad), flops / ceilings.fma) / 1e9;
    return [
      ["kind", kind],
      ["launches", readableCount(launches)],
      [
        "a launch",
        `reads ${readableBytes(read)}, writes ${readableBytes(written)}${flops ? `, ${readableFlops(flops)}` : ""}`,
      ],
      ["FLOPs by byte", flops && read + written ? (flops / (read + written)).toPrecision(3) : ""],
      ["of the limit", slowest && least ? `${((100 * least * launches) / slowest).toFixed(0)} %` : ""],
      ["steps", links("step", steps)],
    ];
  },
  rule(number) {
    const { applied, rules } = model.rules;
    const { doc, numerics } = rules[applied.rule[number]];
    const show = () => setState({ stage: String(applied.stage[number]), view: "rules" });
    return [
      ["says", element("code", {}, doc)],
      ["numerics", numerics],
      ["stage", element("button", { class: "link", on: { click: show } }, String(applied.stage[number]))],
    ];
  },
  buffer(number) {
    const { type, place, bytes, offset, first, last } = model.plan.buffers[number];
    const isArena = place === "arena";
    return [
      ["type", element("code", {}, type)],
      ["size", readableBytes(bytes)],
      ["place", isArena ? `arena, at ${readableCount(offset)}` : place],
      ["phases", isArena ? `${first} to ${last}` : ""],
      ["held until", isArena ? `read by ${reasonsFor.memory.held_for[number]}` : ""],
    ];
  },
};

const childrenOf = (number) =>
  model.layers.paths.flatMap((path, other) => (path && parentOf(path) === model.layers.paths[number] ? [other] : []));

function costFacts(numbers) {
  return Object.entries(METRICS).flatMap(([name, { title, text }]) => {
    const cost = model.cost(numbers, name);
    return cost ? [[title.toLowerCase(), text(cost)]] : [];
  });
}

function kernelCosts(number) {
  const { launches, read, written, flops, seconds } = model.plan.kernels[number];
  const all = { seconds, bytes: launches * (read + written), flops: launches * flops };
  return Object.entries(METRICS).flatMap(([name, { title, text }]) =>
    all[name] ? [[`all: ${title.toLowerCase()}`, text(all[name])]] : [],
  );
}

/** Why the edges from a value go through memory: for each reason the readers that have it. */
function throughMemory(value) {
  const { edges, reasons } = reasonsFor.fusion;
  const readers = new Map();
  edges.value.forEach((from, edge) => {
    if (from !== value || edges.reason[edge] < 0) return;
    const reason = reasons[edges.reason[edge]];
    readers.set(reason, [...(readers.get(reason) ?? []), edges.reader[edge]]);
  });
  return [...readers].map(([{ why, hint }, numbers]) =>
    element(
      "div",
      { class: "reason" },
      ...numbers.map((reader) => link("value", reader)),
      element("p", {}, `${why}. To lift it: ${hint}.`),
    ),
  );
}

/** Whether a value lies in the memory of another, and why not. */
function memoryOf(value) {
  const { decisions, reasons } = reasonsFor.memory;
  const at = decisions.value.indexOf(value);
  if (at < 0) return "";
  const source = decisions.source[at] < 0 ? [] : [link("value", decisions.source[at])];
  const reason = reasons[decisions.reason[at]];
  if (!reason) return ["in place of", ...source];
  return element(
    "div",
    { class: "reason" },
    source.length ? "not in place of " : "a place of its own",
    ...source,
    element("p", {}, `${reason.why}. To lift it: ${reason.hint}.`),
  );
}

/** What the selection is linked to of other kinds. */
function linkFacts(kind) {
  return ["line", "layer", "value", "group", "step", "kernel", "buffer"]
    .filter((other) => other !== kind && !(kind === "kernel" && other === "step"))
    .map((other) => {
      if (other === "value" && !["line", "layer", "buffer", "rule"].includes(kind)) return [other, ""];
      const flags = selection.flags[other];
      const found = [...flags.keys()].filter((number) => flags[number]);
      return [found.length > 1 ? `${other}s` : other, links(other, found)];
    });
}

/** What is said while nothing is selected. */
function overview() {
  const { figures } = model;
  return [
    element(
      "p",
      { class: "note" },
      "Select a line, a layer, an operator, a kernel or a buffer: what belongs to it lights up in every pane.",
    ),
    factList([
      ["operators", `${readableCount(figures.built)} as built, ${readableCount(figures.operators)} after all passes`],
      ["groups", readableCount(figures.groups)],
      ["steps", `${readableCount(figures.steps)} in ${plural(figures.phases, "phase")}`],
      ["kernels", `${readableCount(figures.kernels)}, launched ${readableCount(figures.launches)} times`],
      ["moves", readableBytes(figures.bytes)],
      ["computes", readableFlops(figures.flops)],
      ["time", figures.seconds === null ? "" : readableSeconds(figures.seconds)],
      ["memory", `${readableBytes(figures.memory)}, ${readableBytes(figures.arena)} of it in the arena`],
    ]),
  ];
}
