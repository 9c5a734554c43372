// Which values stay in registers and which go through memory, and why.

definePane({
  name: "fusion",
  title: "Fusion",
  slot: "right",
  linked: (flags) => sum(flags.group),

  async build(pane) {
    pane.about = element("div", { class: "about" });
    pane.list = new WindowedList("Edges", {
      height: 42,
      classes: (row) => `edge ${edgeClass(pane, pane.rows[row])}`,
      render: (row) => renderEdge(pane, pane.rows[row]),
      choose: (row, event) => chooseEnd(pane, pane.rows[row], event),
    });
    pane.groups = new WindowedList("Groups", {
      height: 24,
      classes: (row) => highlight("group", row),
      render: renderGroup,
      choose: (row) => choose("group", row),
    });
    pane.rows = [];
    pane.body.append(pane.about, pane.list.root, pane.groups.root);
    pane.record = await part("fusion");
    pane.verdict = element(
      "select",
      { "aria-label": "Shown", on: { change: () => showVerdict(pane) } },
      element("option", { value: "groups" }, plural(model.plan.groups.length, "group")),
      ...pane.record.verdicts.flatMap(({ name, meaning }) =>
        pane.record.counts[name]
          ? [element("option", { value: name, title: meaning }, `${readableCount(pane.record.counts[name])} ${name}`)]
          : [],
      ),
    );
    if (pane.record.counts.unfused) pane.verdict.value = "unfused";
    pane.tools.append(pane.verdict);
    showVerdict(pane);
  },

  update(pane, changed) {
    if (pane.record && changed.has("select")) markEdges(pane);
  },
});

function showVerdict(pane) {
  const { verdicts, edges } = pane.record;
  const wanted = verdicts.findIndex(({ name }) => name === pane.verdict.value);
  const isGroups = wanted < 0;
  pane.rows = [...edges.value.keys()].filter((edge) => edges.verdict[edge] === wanted);
  pane.rows.sort((a, b) => edges.bytes[b] - edges.bytes[a] || a - b);
  pane.list.root.hidden = isGroups;
  pane.groups.root.hidden = !isGroups;
  pane.list.setCount(pane.rows.length);
  pane.groups.setCount(model.plan.groups.length);
  const said = isGroups
    ? "What runs as one loop nest or one call."
    : `${verdicts[wanted].name}: ${verdicts[wanted].meaning}.`;
  pane.about.replaceChildren(
    element("span", {}, said),
    element(
      "span",
      { class: "aside" },
      `unfused edges cost ${readableBytes(pane.record.bytes)} of ${readableBytes(pane.record.moved)}`,
    ),
  );
  markEdges(pane);
}

function markEdges(pane) {
  pane.list.draw();
  pane.groups.draw();
  if (!selection.thing) return;
  pane.list.reveal(pane.rows.flatMap((edge, row) => (edgeClass(pane, edge) ? [row] : [])));
  pane.groups.reveal([...selection.flags.group.keys()].filter((group) => selection.flags.group[group]));
}

function edgeClass(pane, edge) {
  const { value, reader } = pane.record.edges;
  return highlight("value", value[edge]) || highlight("value", reader[edge]);
}

function renderEdge(pane, edge) {
  const { edges, reasons, verdicts } = pane.record;
  const names = model.values.name;
  const reason =
    edges.reason[edge] < 0 ? { why: verdicts[edges.verdict[edge]].meaning, hint: "" } : reasons[edges.reason[edge]];
  return [
    element(
      "span",
      { class: "ends" },
      element("code", {}, valueName(names[edges.value[edge]]), " → ", valueName(names[edges.reader[edge]])),
      element("span", { class: "aside", title: reason.hint }, reason.why + (reason.hint ? ` · ${reason.hint}` : "")),
    ),
    element("span", { class: "amount" }, edges.bytes[edge] ? readableBytes(edges.bytes[edge]) : ""),
  ];
}

const valueName = (name) => element("span", { class: "code-name", "data-name": name }, name);

function chooseEnd(pane, edge, event) {
  const named = model.numberOf.get(event.target.dataset?.name) ?? -1;
  choose("value", named >= 0 ? named : pane.record.edges.value[edge]);
}

function renderGroup(number) {
  const { name, kind, frame } = model.plan.groups[number];
  return [
    element("span", { class: "number" }, String(number)),
    element("span", { class: "kernel-name" }, name),
    element("span", { class: "aside" }, `${kind}  ${frame.join(" × ")}`),
  ];
}
