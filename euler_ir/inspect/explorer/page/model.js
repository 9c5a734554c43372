// What can be selected, and how it hangs together: each thing stands for a set of values, and two things are linked
// when a value is in both.

class Model {
  constructor(figures, places, values, plan, rules) {
    Object.assign(this, { figures, places, values, plan, rules });
    this.size = values.name.length;
    this.numberOf = new Map(values.name.map((name, number) => [name, number]));
    this.byLine = this.inverse(places.lines.line.length, values.line);
    this.byScope = this.inverse(places.scopes.length, values.scope);
    this.users = this.usersOf();
    this.groupsOf = inverseOfMany(
      this.size,
      plan.groups.map((group) => group.computes),
    );
    this.readersOf = inverseOfMany(
      this.size,
      plan.groups.map((group) => group.reads),
    );
    this.bufferOf = inverseOfMany(
      this.size,
      plan.buffers.map((buffer) => buffer.values),
    );
    this.stepsOf = inverseOfMany(
      plan.groups.length,
      plan.steps.map((step) => step.groups),
    );
    this.kernelsOf = inverseOfMany(
      plan.groups.length,
      plan.kernels.map((kernel) => kernel.groups),
    );
    this.layers = layersOf(places.scopes);
    this.layerOfScope = places.scopes.map((scope) => this.layers.numberOf.get(scope));
    this.kinds = this.kindsOf();
  }

  inverse(count, column) {
    const found = Array.from({ length: count }, () => []);
    column.forEach((at, number) => at >= 0 && found[at].push(number));
    return found;
  }

  usersOf() {
    const users = Array.from({ length: this.size }, () => []);
    this.values.operands.forEach((operands, number) => {
      if (this.values.op[number] === number) for (const operand of new Set(operands)) users[operand].push(number);
    });
    return users;
  }

  /** By kind: how many there are, what each is called in a fragment (`key`) and for readers (`label`), its values. */
  kindsOf() {
    const { values, places, plan, layers } = this;
    const shortFile = (number) => places.files[places.lines.file[number]].path.split("/").pop();
    const ofGroups = (groups) => groups.flatMap((group) => plan.groups[group].computes);
    return {
      value: {
        count: this.size,
        key: (number) => values.name[number],
        label: (number) => values.name[number],
        values: (number) => this.standsFor(number),
      },
      line: {
        count: this.byLine.length,
        key: (number) => `${places.files[places.lines.file[number]].path}:${places.lines.line[number]}`,
        label: (number) => `${shortFile(number)}:${places.lines.line[number]}`,
        values: (number) => this.byLine[number],
      },
      layer: {
        count: layers.paths.length,
        key: (number) => layers.paths[number],
        label: (number) => layers.paths[number] || "(no module)",
        values: (number) => layers.scopes[number].flatMap((scope) => this.byScope[scope]),
      },
      group: {
        count: plan.groups.length,
        key: String,
        label: (number) => `group ${number} ${plan.groups[number].name}`,
        values: (number) => plan.groups[number].computes,
      },
      step: {
        count: plan.steps.length,
        key: String,
        label: (number) => `step ${number} ${plan.steps[number].name}`,
        values: (number) => ofGroups(plan.steps[number].groups),
      },
      kernel: {
        count: plan.kernels.length,
        key: String,
        label: (number) => plan.kernels[number].name,
        values: (number) => ofGroups(plan.kernels[number].groups),
      },
      buffer: {
        count: plan.buffers.length,
        key: String,
        label: (number) => `buffer ${number} ${plan.buffers[number].name}`,
        values: (number) => plan.buffers[number].values,
      },
      rule: {
        count: this.rules.applied.rule.length,
        key: String,
        label: (number) => this.rules.rules[this.rules.applied.rule[number]].name,
        values: (number) =>
          [this.rules.applied.old[number], this.rules.applied.new[number]].filter((value) => value >= 0),
      },
    };
  }

  /** The values that a value stands for: all results of its operator; of one that a pass did away with, also what took
   *  its place. */
  standsFor(number) {
    const { op, became } = this.values;
    const found = new Set();
    for (let at = number; at >= 0 && !found.has(at); at = became[at]) {
      found.add(at);
      for (let other = op[at]; other < this.size && op[other] === op[at]; other++) found.add(other);
    }
    return [...found];
  }

  find(kind, key) {
    if (kind === "value") return this.numberOf.get(key) ?? -1;
    const { count, key: keyOf } = this.kinds[kind] ?? { count: 0 };
    for (let number = 0; number < count; number++) if (keyOf(number) === key) return number;
    return -1;
  }

  /** By kind a flag for each thing: 1 when it is linked to the thing `selected`. */
  linked(selected) {
    const flags = Object.fromEntries(
      Object.entries(this.kinds).map(([kind, { count }]) => [kind, new Uint8Array(count)]),
    );
    if (!selected) return flags;
    for (const number of this.kinds[selected.kind].values(selected.number)) {
      flags.value[number] = 1;
      if (this.values.line[number] >= 0) flags.line[this.values.line[number]] = 1;
      flags.layer[this.layerOfScope[this.values.scope[number]]] = 1;
      for (const buffer of this.bufferOf[number]) flags.buffer[buffer] = 1;
      // No group makes a parameter or an input: it is linked to those that read it.
      const groups = this.groupsOf[number].length ? this.groupsOf[number] : this.readersOf[number];
      for (const group of groups) flags.group[group] = 1;
    }
    flags.group.forEach((isLinked, group) => {
      if (!isLinked) return;
      for (const step of this.stepsOf[group]) flags.step[step] = 1;
      for (const kernel of this.kernelsOf[group]) flags.kernel[kernel] = 1;
    });
    // What was chosen itself is told apart from what runs beside it.
    if (["group", "step", "kernel", "buffer", "rule"].includes(selected.kind)) {
      flags[selected.kind].fill(0);
      flags[selected.kind][selected.number] = 1;
      if (selected.kind === "step") flags.group.fill(0);
      if (selected.kind === "step") for (const group of this.plan.steps[selected.number].groups) flags.group[group] = 1;
    }
    return flags;
  }

  /** The numbers of the rules that the pass before `stage` applied. */
  rulesOf(stage) {
    return this.rules.applied.stage.flatMap((at, number) => (at === stage ? [number] : []));
  }

  /** The cost of `numbers` together, by `metric`: "bytes", "flops" or "seconds". */
  cost(numbers, metric) {
    const column = this.values[metric];
    let sum = 0;
    if (column) for (const number of numbers) sum += column[number];
    return sum;
  }
}

function inverseOfMany(count, lists) {
  const found = Array.from({ length: count }, () => []);
  lists.forEach((list, at) => list.forEach((number) => found[number].push(at)));
  return found;
}

/** Scopes as a tree of folders, in the order of a walk: `h.0.attn` lies in `h.0`, which lies in `h`. */
function layersOf(scopes) {
  const all = new Set();
  for (const scope of scopes) {
    const words = scope ? scope.split(".") : [];
    for (let length = 1; length <= words.length; length++) all.add(words.slice(0, length).join("."));
  }
  const children = new Map([["", []]]);
  for (const path of all) children.set(path, []);
  for (const path of all) children.get(path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : "").push(path);
  const paths = [];
  const pending = [...children.get("")].reverse();
  while (pending.length) {
    const path = pending.pop();
    paths.push(path);
    pending.push(...[...children.get(path)].reverse());
  }
  if (scopes.includes("")) paths.push("");
  const inside = paths.map((path) =>
    scopes.flatMap((scope, number) => (scope === path || (path && scope.startsWith(`${path}.`)) ? [number] : [])),
  );
  return {
    paths,
    scopes: inside,
    hasChildren: paths.map((path) => path !== "" && children.get(path).length > 0),
    numberOf: new Map(paths.map((path, number) => [path, number])),
  };
}
