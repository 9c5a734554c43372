// The modules of the model as a tree of folders, each with the cost of all that lies in it.

definePane({
  name: "layers",
  title: "Layers",
  slot: "layers",
  linked: (flags) => sum(flags.layer),

  build(pane) {
    pane.open = new Set();
    pane.list = new WindowedList("Layers", {
      height: 24,
      role: "tree",
      classes: (row) => highlightLayer(pane, pane.rows[row]),
      attributes: (row) => treeAttributes(pane, pane.rows[row]),
      render: (row) => renderLayer(pane, pane.rows[row]),
      choose: (row, event) =>
        event.target.closest(".twisty") ? toggle(pane, pane.rows[row]) : choose("layer", pane.rows[row]),
      key: (row, event) => unfold(pane, pane.rows[row], event.key),
    });
    if (model.layers.paths.some(Boolean)) pane.body.append(pane.list.root);
    else
      pane.body.append(
        note("No operator of this graph belongs to a module: the layers of an nn.Module would be listed here."),
      );
  },

  update(pane, changed) {
    if (changed.has("select") && selection.thing?.kind === "layer") openTo(pane, selection.thing.number);
    if (changed.has("metric")) {
      pane.costs = model.layers.scopes.map((scopes) =>
        model.cost(
          scopes.flatMap((scope) => model.byScope[scope]),
          metric(),
        ),
      );
      pane.most = Math.max(0, ...pane.costs);
    }
    showLayers(pane);
    if (!changed.has("select") || !selection.thing) return;
    pane.list.reveal(pane.rows.flatMap((layer, row) => (highlightLayer(pane, layer) ? [row] : [])));
  },
});

const parentOf = (path) => path.slice(0, Math.max(0, path.lastIndexOf(".")));

function showLayers(pane) {
  const { paths } = model.layers;
  pane.rows = [...paths.keys()].filter((number) => {
    for (let path = parentOf(paths[number]); path; path = parentOf(path)) if (!pane.open.has(path)) return false;
    return true;
  });
  pane.list.setCount(pane.rows.length);
}

/** A folder that is closed lights up for what is in it. */
function highlightLayer(pane, layer) {
  const own = highlight("layer", layer);
  const path = model.layers.paths[layer];
  if (own || !selection.thing || !path || pane.open.has(path)) return own;
  return model.layers.paths.some((other, number) => selection.flags.layer[number] && other.startsWith(`${path}.`))
    ? "linked"
    : "";
}

function treeAttributes(pane, layer) {
  const path = model.layers.paths[layer];
  const isOpen = model.layers.hasChildren[layer] ? String(pane.open.has(path)) : null;
  return { "aria-level": path.split(".").length, "aria-expanded": isOpen };
}

function renderLayer(pane, layer) {
  const path = model.layers.paths[layer];
  const depth = path ? path.split(".").length - 1 : 0;
  const twisty = model.layers.hasChildren[layer] ? (pane.open.has(path) ? "▾" : "▸") : "";
  return [
    element("span", { class: "twisty", style: `margin-left:${depth * 14}px`, "aria-hidden": "true" }, twisty),
    element("span", { class: "layer-name", title: path }, path.split(".").pop() || "(no module)"),
    costCell(pane.costs[layer], pane.most ? pane.costs[layer] / pane.most : 0),
  ];
}

function toggle(pane, layer) {
  const path = model.layers.paths[layer];
  if (!model.layers.hasChildren[layer]) return;
  if (!pane.open.delete(path)) pane.open.add(path);
  showLayers(pane);
}

function unfold(pane, layer, key) {
  const isOpen = pane.open.has(model.layers.paths[layer]);
  if ((key !== "ArrowRight" || isOpen) && (key !== "ArrowLeft" || !isOpen)) return false;
  toggle(pane, layer);
  return true;
}

function openTo(pane, layer) {
  for (let path = parentOf(model.layers.paths[layer]); path; path = parentOf(path)) pane.open.add(path);
}
