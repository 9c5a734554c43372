// Search by keyboard over all that has a name.

const MOST_FOUND = 60;
const SEARCHED = ["layer", "kernel", "line", "value", "group", "buffer", "rule"];

const search = { found: [], at: 0 };

function openSearch() {
  const dialog = byId("search");
  if (!dialog.open) dialog.showModal();
  const input = byId("search-input");
  input.select();
  input.focus();
  find(input.value);
}

/** The things that `words` are all in, those that begin so first. */
function matches(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return [];
  const found = [];
  for (const [order, kind] of SEARCHED.entries()) {
    for (let number = 0; number < model.kinds[kind].count; number++) {
      const text = searchText(kind, number);
      const lower = text.toLowerCase();
      if (!wanted.every((word) => lower.includes(word))) continue;
      const label = model.kinds[kind].label(number).toLowerCase().replace(/^%/, "");
      const rank = label === wanted[0] ? 0 : label.startsWith(wanted[0]) ? 1 : label.includes(wanted[0]) ? 2 : 3;
      found.push({ kind, number, rank: rank * SEARCHED.length + order });
    }
  }
  return found.sort((a, b) => a.rank - b.rank).slice(0, MOST_FOUND);
}

/** What is searched of a thing: its name, and what one might remember of it. */
function searchText(kind, number) {
  const label = model.kinds[kind].label(number);
  if (kind === "value") return `${label} ${model.values.operator[number]} ${model.values.type[number]}`;
  if (kind === "line") return `${label} ${lineText(number)}`;
  return `${KIND_NAMES[kind]} ${label}`;
}

function lineText(number) {
  const { files, lines } = model.places;
  return (files[lines.file[number]].text?.[lines.line[number] - 1] ?? "").trim();
}

function aside(kind, number) {
  if (kind === "value") return `${model.values.operator[number]}  ${model.values.type[number]}`;
  if (kind === "line") return lineText(number);
  if (kind === "rule")
    return `at ${model.values.name[model.rules.applied.old[number]] ?? ""}, stage ${model.rules.applied.stage[number]}`;
  return "";
}

function find(words) {
  search.found = matches(words);
  search.at = 0;
  drawFound();
}

function drawFound() {
  const list = byId("search-found");
  list.replaceChildren(
    ...search.found.map(({ kind, number }, at) =>
      element(
        "li",
        {
          id: `found-${at}`,
          role: "option",
          "aria-selected": String(at === search.at),
          on: { click: () => take(at) },
        },
        element("span", { class: "kind" }, KIND_NAMES[kind]),
        element("b", {}, model.kinds[kind].label(number)),
        element("span", { class: "aside" }, aside(kind, number)),
      ),
    ),
  );
  byId("search-none").hidden = search.found.length > 0 || !byId("search-input").value.trim();
  byId("search-input").setAttribute("aria-activedescendant", search.found.length ? `found-${search.at}` : "");
  list.children[search.at]?.scrollIntoView({ block: "nearest" });
}

function take(at) {
  const found = search.found[at];
  if (!found) return;
  byId("search").close();
  choose(found.kind, found.number);
}

function buildSearch() {
  const input = byId("search-input");
  input.addEventListener("input", () => find(input.value));
  input.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      search.at = Math.max(0, Math.min(search.found.length - 1, search.at + move));
      drawFound();
    } else if (event.key === "Enter") take(search.at);
    else return;
    event.preventDefault();
  });
}
