// The user's program, with what each line costs in its margin.

definePane({
  name: "source",
  title: "Source",
  slot: "source",
  linked: (flags) => sum(flags.line),

  build(pane) {
    const { files, lines } = model.places;
    pane.numbers = files.map(() => new Map());
    lines.line.forEach((line, number) => pane.numbers[lines.file[number]].set(line, number));
    pane.file = costliestFile();
    pane.picker = element(
      "select",
      { "aria-label": "File", on: { change: () => showFile(pane, Number(pane.picker.value)) } },
      ...files.map((file, number) => element("option", { value: number }, file.path)),
    );
    pane.list = new WindowedList("Source lines", {
      classes: (row) => `source-row ${highlight("line", lineAt(pane, row))}`,
      render: (row) => renderSource(pane, row),
      choose: (row) => lineAt(pane, row) >= 0 && choose("line", lineAt(pane, row)),
    });
    if (!files.length) {
      pane.body.append(
        note(
          "No operator of this graph says a line of a program: a graph read from text has none, unless it was ",
          "written with locations.",
        ),
      );
      return;
    }
    pane.tools.append(pane.picker);
    showFile(pane, pane.file);
  },

  update(pane, changed) {
    if (!model.places.files.length) return;
    if (changed.has("metric")) showFile(pane, pane.file);
    if (!changed.has("select")) return;
    const { file } = model.places.lines;
    const linked = selection.thing
      ? [...selection.flags.line.keys()].filter((number) => selection.flags.line[number])
      : [];
    if (linked.length && !linked.some((number) => file[number] === pane.file)) showFile(pane, file[linked[0]]);
    pane.list.draw();
    const rows = linked
      .filter((number) => file[number] === pane.file)
      .map((number) => model.places.lines.line[number] - 1);
    pane.list.reveal(rows.sort((a, b) => a - b));
  },
});

const lineAt = (pane, row) => pane.numbers[pane.file].get(row + 1) ?? -1;

function costliestFile() {
  const costs = model.places.files.map(() => 0);
  model.places.lines.file.forEach((file, line) => (costs[file] += 1 + model.cost(model.byLine[line], metric())));
  return Math.max(0, costs.indexOf(Math.max(...costs)));
}

function showFile(pane, file) {
  pane.file = file;
  pane.picker.value = String(file);
  pane.costs = new Map(
    [...pane.numbers[file]].map(([line, number]) => [line, model.cost(model.byLine[number], metric())]),
  );
  pane.most = Math.max(0, ...pane.costs.values());
  const { text, missing } = model.places.files[file];
  pane.body.replaceChildren(
    ...(text ? [pane.list.root] : [note(`The text of ${model.places.files[file].path} cannot be shown: ${missing}.`)]),
  );
  pane.inside = insideStrings(text ?? []);
  pane.list.setCount(text ? text.length : 0);
  const costliest = [...pane.costs].reduce((most, line) => (line[1] > most[1] ? line : most), [0, -1]);
  pane.list.reveal([Math.max(0, costliest[0] - 1)]);
}

function renderSource(pane, row) {
  const cost = pane.costs.get(row + 1) ?? 0;
  const text = model.places.files[pane.file].text[row];
  return [
    element("span", { class: "number" }, String(row + 1)),
    costCell(cost, pane.most ? cost / pane.most : 0),
    element(
      "code",
      {},
      ...(pane.inside[row] ? [element("span", { class: "code-string" }, text)] : painted(text, "python")),
    ),
  ];
}
