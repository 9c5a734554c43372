// The parts of the page's data: each is JSON, deflated, in base64, and is decoded when it is first asked for.

const decoded = new Map();

/** The record of the part called `name`, as a promise; null when the page has no such part. */
function part(name) {
  if (!decoded.has(name)) {
    const holder = byId(`part-${name}`);
    decoded.set(name, holder ? inflate(holder.textContent) : Promise.resolve(null));
  }
  return decoded.get(name);
}

async function inflate(base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** The rows of each stage's text, numbers of lines in the table, made from the changes when they are asked for. */
class StageTexts {
  constructor(record) {
    this.stages = record.stages;
    this.lines = record.text.line;
    this.values = record.text.value;
    this.made = [];
  }

  rows(stage) {
    for (let next = this.made.length; next <= stage; next++) {
      this.made.push(spliced(next ? this.made[next - 1] : [], this.stages[next].changes));
    }
    return this.made[stage];
  }

  /** What the stage changed: rows {sign, line, at}, with up to `context` rows around; a row that stands for others has
   *  their number as `hidden`. */
  difference(stage, context = 3) {
    const old = stage ? this.rows(stage - 1) : [];
    const rows = [];
    let at = 0;
    const keep = (end, isLast) => {
      const head = at === 0 ? 0 : context;
      const tail = isLast ? 0 : context;
      if (end - at <= head + tail + 1) {
        for (; at < end; at++) rows.push({ sign: " ", line: old[at], at });
        return;
      }
      for (const stop = at + head; at < stop; at++) rows.push({ sign: " ", line: old[at], at });
      rows.push({ sign: "…", hidden: end - tail - at, line: -1, at });
      for (at = end - tail; at < end; at++) rows.push({ sign: " ", line: old[at], at });
    };
    for (const [position, removed, added] of this.stages[stage].changes) {
      keep(position, false);
      for (; at < position + removed; at++) rows.push({ sign: "−", line: old[at], at });
      for (const line of added) rows.push({ sign: "+", line, at });
    }
    if (rows.length) keep(old.length, true);
    return rows;
  }
}

function spliced(old, changes) {
  if (!changes.length) return old;
  const rows = [];
  let at = 0;
  for (const [position, removed, added] of changes) {
    while (at < position) rows.push(old[at++]);
    rows.push(...added);
    at += removed;
  }
  while (at < old.length) rows.push(old[at++]);
  return rows;
}
