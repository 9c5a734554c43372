// How exact each value is: its largest error beside f64, and what is no number in it.

definePane({
  name: "numerics",
  title: "Numerics",
  slot: "below",
  linked: (flags) => sum(flags.value),

  async build(pane) {
    pane.report = await part("numerics");
    if (!pane.report) {
      pane.body.append(
        note(
          "Nothing was compared. ",
          element("code", {}, "euler-ir explore --numerics"),
          " runs every value in its own type and in f64, and the compiled program beside both.",
        ),
      );
      return;
    }
    pane.about = element("div", { class: "about" });
    pane.list = new WindowedList("Errors of values", {
      height: 24,
      classes: (row) => highlight("value", pane.record.value[pane.rows[row]]),
      render: (row) => renderError(pane, pane.rows[row]),
      choose: (row) => choose("value", pane.record.value[pane.rows[row]]),
    });
    pane.which = element(
      "select",
      { "aria-label": "Compared", on: { change: () => listErrors(pane) } },
      element("option", { value: "stored" }, `as ${pane.report.backend} stores them`),
      element("option", { value: "built" }, "as built"),
    );
    pane.tools.append(pane.which);
    pane.body.append(pane.about, pane.list.root);
    listErrors(pane);
  },

  update(pane, changed) {
    if (pane.list && changed.has("select")) markErrors(pane);
  },
});

/** JSON holds infinities and NaN as text. */
const errorNumber = (error) => Number(String(error).replace("inf", "Infinity"));

function listErrors(pane) {
  pane.record = pane.report[pane.which.value];
  const { relative, nans, value } = pane.record;
  pane.rows = [...value.keys()].sort(
    (a, b) => nans[b] - nans[a] || errorNumber(relative[b]) - errorNumber(relative[a]) || a - b,
  );
  const withNans = nans.filter(Boolean).length;
  pane.about.replaceChildren(
    element("b", {}, withNans ? `${plural(withNans, "value")} with NaN` : "no NaN"),
    element(
      "span",
      { title: pane.report.divergence ?? "" },
      pane.report.divergence ?? "all as exact as rounding lets them be",
    ),
    element("span", { class: "aside" }, pane.report.arrays),
  );
  pane.list.setCount(pane.rows.length);
  markErrors(pane);
}

function markErrors(pane) {
  pane.list.draw();
  pane.list.reveal(pane.rows.flatMap((at, row) => (highlight("value", pane.record.value[at]) ? [row] : [])));
}

const ulpsText = (ulps) => (ulps ? `${ulps < 100 ? ulps.toPrecision(2) : readableCount(Math.round(ulps))} ulp` : "");

/** An error with a bar for its size: none below 1e-16, the whole width at 1. */
function renderError(pane, at) {
  const { value, relative, ulps, nans, infinities } = pane.record;
  const error = errorNumber(relative[at]);
  const share = error > 0 ? Math.max(0, Math.min(1, 1 + Math.log10(error) / 16)) : 0;
  const odd = [
    nans[at] ? `${readableCount(nans[at])} NaN` : "",
    infinities[at] ? `${readableCount(infinities[at])} inf` : "",
  ];
  return [
    element("code", { class: "kernel-name" }, valueName(model.values.name[value[at]])),
    element("span", { class: "odd" }, odd.filter(Boolean).join(", ")),
    element("span", { class: "aside" }, ulpsText(errorNumber(ulps[at]))),
    element("span", { class: "cost", style: `--share:${share.toFixed(3)}` }, error ? error.toExponential(1) : "exact"),
  ];
}
