// The one thing that is selected, and what is linked to it in every pane.

let model = null;
const selection = { thing: null, flags: {} };

function choose(kind, number) {
  setState({ select: `${kind}:${model.kinds[kind].key(number)}` });
}

function followSelection(changed) {
  if (!changed.has("select")) return;
  const [kind, ...rest] = state.select.split(":");
  const number = model.kinds[kind] ? model.find(kind, rest.join(":")) : -1;
  selection.thing = number >= 0 ? { kind, number } : null;
  selection.flags = model.linked(selection.thing);
}

const METRICS = {
  seconds: { title: "Time", text: readableSeconds },
  bytes: { title: "Bytes", text: readableBytes },
  flops: { title: "FLOPs", text: readableFlops },
};

/** The metric that is shown: what was asked for, else time where it was measured. */
function metric() {
  if (METRICS[state.metric] && model.values[state.metric]) return state.metric;
  return model.values.seconds ? "seconds" : "bytes";
}

/** A cost with its bar; `share` is the part of the largest. */
function costCell(cost, share) {
  const text = cost ? METRICS[metric()].text(cost) : "";
  return element("span", { class: "cost", style: `--share:${share.toFixed(3)}` }, text);
}
