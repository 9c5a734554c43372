// Puts the page together: the parts that link everything first, the others when their panes are shown.

async function start() {
  model = new Model(...(await Promise.all(["figures", "places", "values", "plan", "rules"].map(part))));
  showFigures();
  buildSlots();
  buildLayout();
  buildMetric();
  onChange(followSelection);
  onChange(updatePanes);
  readFragment();
  document.body.classList.remove("opening");
  await Promise.all(panes.map((pane) => pane.ready));
  performance.mark("opened");
}

/** The totals of the step, in the head. */
function showFigures() {
  const { operators, kernels, memory, flops, seconds } = model.figures;
  const figures = [
    [readableCount(operators), "operators"],
    [readableCount(kernels), "kernels"],
    [readableBytes(memory), "of memory"],
    [readableFlops(flops), ""],
    ...(seconds === null ? [] : [[readableSeconds(seconds), "a call"]]),
  ];
  byId("figures").append(...figures.map(([amount, word]) => element("li", {}, element("b", {}, amount), ` ${word}`)));
}

start().catch((error) => {
  byId("failure").hidden = false;
  byId("failure").append(element("p", {}, String(error)));
  throw error;
});
