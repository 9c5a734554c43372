// Puts the page together: the parts that link everything first, the others when their panes are shown.

async function start() {
  model = new Model(...(await Promise.all(["figures", "places", "values", "plan", "rules"].map(part))));
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

start().catch((error) => {
  byId("failure").hidden = false;
  byId("failure").append(element("p", {}, String(error)));
  throw error;
});
