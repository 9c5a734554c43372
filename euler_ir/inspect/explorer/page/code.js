// Code in colour: enough to find one's way, no more.

const PYTHON_WORDS =
  "def class return if elif else for while in with as import from lambda not and or is None True False yield raise " +
  "try except finally pass self";
const GRAPH_WORDS =
  "graph fused plan group buffer phase output update reads writes nest loop kernel store matmul copy input";
const NUMBER_TYPES = "f64 f32 f16 bf16 i64 i32 i8 u8 bool";
const oneOf = (words) => `\\b(?:${words.replaceAll(" ", "|")})\\b`;

/** A pattern that finds any of `kinds`: pairs of a kind and its pattern, the first that matches first. */
function anyOf(kinds) {
  const named = Object.entries(kinds).map(([kind, pattern]) => `(?<${kind}>${pattern})`);
  return new RegExp(named.join("|"), "g");
}

const STRING = String.raw`"(?:[^"\\]|\\.)*"`;
const LANGUAGES = {
  python: anyOf({
    comment: "#.*",
    string: String.raw`"""(?:.*?"""|.*$)|${STRING}|'(?:[^'\\]|\\.)*'`,
    word: oneOf(PYTHON_WORDS),
    number: String.raw`\b\d[\w.]*`,
  }),
  graph: anyOf({
    comment: String.raw`\/\/.*`,
    name: String.raw`%(?:${STRING}(?:#\d+)?|[^\s,=:()\[\]"]+)`,
    string: STRING,
    type: String.raw`${oneOf(NUMBER_TYPES)}(?:\[[^\]]*\])?`,
    word: String.raw`(?<== )[a-z_][a-z_0-9]*|^\s*${oneOf(GRAPH_WORDS)}`,
  }),
  llvm: anyOf({
    comment: ";.*",
    string: '"[^"]*"',
    name: String.raw`[%@][\w.$-]+`,
    type: String.raw`\b(?:i\d+|float|double|half|ptr|void|label)\b`,
    word: String.raw`(?<=^\s*|= )(?:tail call|[a-z]+)\b`,
  }),
  asm: anyOf({
    comment: "[#;].*",
    name: String.raw`%[a-z]+\d*|\b[xyz]mm\d+\b`,
    word: String.raw`(?<=^\t)[a-z]\w*`,
    type: String.raw`^\S+:`,
    string: '"[^"]*"',
  }),
};

/** For each line of a Python text whether it begins inside of a string in triple quotes. */
function insideStrings(lines) {
  let open = null;
  return lines.map((line) => {
    const isInside = open !== null;
    for (const [quote] of line.matchAll(/"""|'''/g)) open = open === null ? quote : open === quote ? null : open;
    return isInside;
  });
}

/** `text` as nodes. Names of values are buttons in all but name: they carry what they are called in `data-name`. */
function painted(text, language) {
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(LANGUAGES[language])) {
    if (found.index > at) nodes.push(text.slice(at, found.index));
    const kind = Object.keys(found.groups).find((name) => found.groups[name] !== undefined);
    const isValue = kind === "name" && language === "graph";
    nodes.push(element("span", { class: `code-${kind}`, "data-name": isValue ? found[0] : null }, found[0]));
    at = found.index + found[0].length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}
