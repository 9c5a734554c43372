// The text of every stage, whole or as what its pass changed.

definePane({
  name: "stages",
  title: "Stages",
  slot: "stages",
  linked: (flags) => sum(flags.value),

  async build(pane) {
    pane.rows = [];
    pane.list = new WindowedList("Lines of the stage", {
      classes: (row) => stageClasses(pane, pane.rows[row]),
      render: (row) => renderStageRow(pane, pane.rows[row]),
      choose: (row, event) => chooseInStage(pane, pane.rows[row], event),
    });
    pane.strip = element("div", { class: "strip", role: "group", "aria-label": "Stages" });
    pane.about = element("div", { class: "about" });
    pane.body.append(pane.strip, pane.about, pane.list.root);
    pane.texts = new StageTexts(await part("stages"));
    buildStrip(pane);
    showStage(pane);
  },

  update(pane, changed) {
    if (!pane.texts) return;
    if (changed.has("stage") || changed.has("view")) showStage(pane);
    else if (changed.has("select")) markStage(pane);
  },
});

const stageNumber = (pane) => Math.min(Math.max(0, Number(state.stage) || 0), pane.texts.stages.length - 1);

function changesOf(stage) {
  return stage.changes.reduce(([less, more], [, removed, added]) => [less + removed, more + added.length], [0, 0]);
}

/** A button for each stage, with bars for the lines that it took away and brought. */
function buildStrip(pane) {
  const graphs = pane.texts.stages.filter((stage, number) => number && stage.kind === "graph");
  const most = Math.max(1, ...graphs.flatMap(changesOf));
  const bar = (lines) => (lines ? Math.max(2, Math.round((12 * Math.log1p(lines)) / Math.log1p(most))) : 0);
  pane.strip.replaceChildren(
    ...pane.texts.stages.map((stage, number) => {
      const [less, more] = number && stage.kind === "graph" ? changesOf(stage) : [0, 0];
      const words =
        less || more
          ? `−${readableCount(less)} +${readableCount(more)} lines`
          : number && stage.kind === "graph"
            ? "no change"
            : stage.summary;
      return element(
        "button",
        {
          class: `tick ${stage.kind}`,
          title: `${number}. ${stage.name}: ${words}`,
          "aria-label": `${stage.name}, ${words}`,
          on: { click: () => setState({ stage: String(number) }) },
        },
        element("i", { class: "more", style: `height:${bar(more)}px` }),
        element("i", { class: "less", style: `height:${bar(less)}px` }),
      );
    }),
  );
}

function showStage(pane) {
  const number = stageNumber(pane);
  const stage = pane.texts.stages[number];
  const canDiffer = number > 0 && stage.kind === "graph";
  const applied = canDiffer ? model.rulesOf(number) : [];
  const views = [
    ["text", "Text"],
    ...(canDiffer ? [["diff", "Diff"]] : []),
    ...(applied.length ? [["rules", `Rules ${applied.length}`]] : []),
  ];
  const view = views.some(([name]) => name === state.view) ? state.view : "text";
  pane.rows =
    view === "diff"
      ? pane.texts.difference(number)
      : view === "rules"
        ? ruleRows(applied)
        : pane.texts.rows(number).map((line, at) => ({ sign: "", line, at }));
  pane.regions = new Int32Array(view === "text" ? pane.rows.length : 0).fill(-1);
  if (view === "text") stage.regions.forEach(([, , first, last], region) => pane.regions.fill(region, first, last + 1));
  [...pane.strip.children].forEach((tick, at) => tick.setAttribute("aria-pressed", String(at === number)));
  pane.tools.replaceChildren(
    ...(canDiffer ? [segmented("View", views, view, (next) => setState({ view: next }))] : []),
  );
  pane.list.root.scrollTop = 0;
  pane.list.setCount(pane.rows.length);
  markStage(pane);
}

function markStage(pane) {
  const number = stageNumber(pane);
  const stage = pane.texts.stages[number];
  pane.about.replaceChildren(
    element("b", {}, stage.name),
    element("span", {}, stage.summary),
    element(
      "span",
      { class: "aside" },
      [
        plural(stage.size, { graph: "operator", fused: "group", plan: "step" }[stage.kind]),
        stage.seconds === null ? "" : readableSeconds(stage.seconds),
      ]
        .filter(Boolean)
        .join(", "),
    ),
  );
  pane.list.draw();
  if (pane.rows.length === 0 && state.view === "diff")
    pane.about.append(element("span", { class: "aside" }, "changed nothing"));
  const marked = pane.rows.flatMap((row, at) => (/chosen|linked/.test(stageClasses(pane, row)) ? [at] : []));
  pane.list.reveal(marked);
  if (selection.thing?.kind === "value" && !marked.length) pane.about.append(whereElse(selection.thing.number));
}

/** Where a value that this stage does not show is found. */
function whereElse(value) {
  const { first, last, name } = model.values;
  return element(
    "span",
    { class: "aside" },
    `${name[value]} lives in stages ${first[value]} to ${last[value]}: `,
    element(
      "button",
      { class: "link", on: { click: () => setState({ stage: String(last[value]), view: "text" }) } },
      "show",
    ),
  );
}

/** Each application of a rule: its name, the operator that it replaced and the one that it put there. */
function ruleRows(applied) {
  const { before, after } = model.rules.applied;
  return applied.flatMap((rule) => [
    { sign: "", rule, line: -1 },
    { sign: "−", rule, line: before[rule] },
    { sign: "+", rule, line: after[rule] },
  ]);
}

function regionOf(pane, row) {
  const region = pane.regions[row.at];
  return row.sign || region === undefined || region < 0 ? null : pane.texts.stages[stageNumber(pane)].regions[region];
}

function stageClasses(pane, row) {
  const signs = { "+": "added", "−": "removed", "…": "hidden-rows" };
  const value = row.line < 0 ? -1 : pane.texts.values[row.line];
  const region = regionOf(pane, row);
  const mark =
    (value >= 0 && highlight("value", value)) ||
    (region && row.at === region[2] ? highlight(region[0], region[1]) : "");
  const ofRule = row.rule === undefined ? "" : highlight("rule", row.rule);
  const kind = row.rule !== undefined && !row.sign ? "rule-row" : (signs[row.sign] ?? "");
  return `stage-row ${kind} ${mark || ofRule}`;
}

function renderStageRow(pane, row) {
  if (row.hidden)
    return [element("span", { class: "number" }), element("code", {}, `${plural(row.hidden, "line")} as before`)];
  if (row.rule !== undefined && !row.sign) {
    const { name, doc, numerics } = model.rules.rules[model.rules.applied.rule[row.rule]];
    return [element("b", {}, name), element("code", {}, doc), element("span", { class: "aside" }, numerics)];
  }
  return [
    element("span", { class: "number" }, row.sign === "+" || row.rule !== undefined ? "" : String(row.at + 1)),
    ...(row.sign ? [element("span", { class: "sign" }, row.sign)] : []),
    element("code", {}, ...painted(pane.texts.lines[row.line], "graph")),
  ];
}

/** A name that is clicked is what is chosen; elsewhere in a row it is the value that the row makes, or its region. */
function chooseInStage(pane, row, event) {
  if (row.rule !== undefined && !event.target.dataset?.name) return choose("rule", row.rule);
  if (row.line < 0) return;
  const named = model.numberOf.get(event.target.dataset?.name) ?? -1;
  const value = named >= 0 ? named : pane.texts.values[row.line];
  const region = regionOf(pane, row);
  if (value >= 0) choose("value", value);
  else if (region) choose(region[0], region[1]);
}
