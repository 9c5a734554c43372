// A list of which only the rows in sight exist, so that twenty thousand cost no more than forty.

const BEYOND = 10; // rows made above and below those in sight

class WindowedList {
  /** `render(row)` gives the children of a row, `classes(row)` its classes and `attributes(row)` what else it has;
   *  `choose(row, event)` is called on a click or Enter, `key(row, event)` on a key that the list does not know. */
  constructor(label, { height = 20, role = "listbox", render, classes, attributes = () => ({}), choose, key }) {
    Object.assign(this, {
      height,
      role,
      render,
      classes,
      attributes,
      choose,
      key,
      count: 0,
      cursor: -1,
      drawn: [0, 0],
    });
    this.space = element("div", { class: "space", role: "presentation" });
    this.root = element(
      "div",
      {
        class: "list",
        role,
        tabindex: "0",
        "aria-label": label,
        on: {
          scroll: () => this.follow(),
          keydown: (event) => this.onKey(event),
          click: (event) => this.onClick(event),
        },
      },
      this.space,
    );
    this.id = `list${WindowedList.made++}`;
    new ResizeObserver(() => this.follow()).observe(this.root);
  }

  setCount(count) {
    this.count = count;
    this.cursor = Math.min(this.cursor, count - 1);
    this.space.style.height = `${count * this.height}px`;
    this.draw();
  }

  /** The first row that must exist, and the one after the last. */
  range() {
    const { scrollTop, clientHeight } = this.root;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - BEYOND);
    return [first, Math.min(this.count, Math.ceil((scrollTop + clientHeight) / this.height) + BEYOND)];
  }

  /** Draw anew only if other rows came into sight: a row that is replaced while it is pressed would miss the click. */
  follow() {
    const [first, last] = this.range();
    if (first !== this.drawn[0] || last !== this.drawn[1]) this.draw();
  }

  draw() {
    const [first, last] = (this.drawn = this.range());
    const rows = [];
    for (let row = first; row < last; row++) rows.push(this.made(row));
    this.space.replaceChildren(...rows);
    if (this.cursor >= first && this.cursor < last)
      this.root.setAttribute("aria-activedescendant", `${this.id}-${this.cursor}`);
    else this.root.removeAttribute("aria-activedescendant");
  }

  made(row) {
    const classes = this.classes(row);
    return element(
      "div",
      {
        id: `${this.id}-${row}`,
        role: this.role === "tree" ? "treeitem" : "option",
        class: `row ${classes}${row === this.cursor ? " cursor" : ""}`,
        style: `top:${row * this.height}px;height:${this.height}px`,
        "aria-selected": String(classes.includes("chosen")),
        "aria-posinset": row + 1,
        "aria-setsize": this.count,
        ...this.attributes(row),
      },
      ...this.render(row),
    );
  }

  /** Bring one of `rows` into sight, unless one is. */
  reveal(rows) {
    if (!rows.length || !this.root.clientHeight) return;
    const top = this.root.scrollTop / this.height;
    const bottom = top + this.root.clientHeight / this.height - 1;
    if (rows.some((row) => row >= top && row <= bottom)) return;
    this.root.scrollTop = Math.max(0, rows[0] * this.height - this.root.clientHeight / 3);
    this.draw();
  }

  moveTo(row) {
    this.cursor = Math.max(0, Math.min(this.count - 1, row));
    const top = this.cursor * this.height;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    const least = top + this.height - this.root.clientHeight;
    if (least > this.root.scrollTop) this.root.scrollTop = least;
    this.draw();
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.root.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) this.moveTo(this.cursor < 0 ? 0 : this.cursor + moves[event.key]);
    else if (event.key === "Enter" && this.cursor >= 0) this.choose(this.cursor, event);
    else if (!this.key?.(this.cursor, event)) return;
    event.preventDefault();
  }

  /** The row is told by its place: it may have been drawn anew between the press and the release. */
  onClick(event) {
    const row = Math.floor((event.clientY - this.space.getBoundingClientRect().top) / this.height);
    if (row < 0 || row >= this.count || getSelection().toString()) return;
    this.cursor = row;
    this.choose(row, event);
  }
}
WindowedList.made = 0;
