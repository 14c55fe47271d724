"use strict";
// A list box of many rows, of which only those in view are in the document.
(function (page) {
  const { el } = page.dom;
  const ROW = 46; // height of a row in CSS pixels, as in the style sheet
  const SPARE = 6; // rows drawn above and below the view
  const PAGE = 10;

  class List {
    /** ``row(entry)`` returns the children of an option; ``choose(entry)`` is called by a click or a key. */
    constructor({ label, row, choose }) {
      this.row = row;
      this.choose = choose;
      this.entries = [];
      this.at = -1;
      this.inner = el("div", { class: "rows", role: "presentation" });
      this.root = el("div", { class: "list", role: "listbox", tabindex: 0, "aria-label": label }, this.inner);
      this.root.addEventListener("scroll", () => this.draw(), { passive: true });
      this.root.addEventListener("keydown", (event) => this.key(event));
      this.resizes = new ResizeObserver(() => this.draw());
      this.resizes.observe(this.root);
    }

    /** Show other entries; ``chosen`` is selected and brought into view. */
    set(entries, chosen) {
      this.entries = entries;
      this.inner.style.height = `${entries.length * ROW}px`;
      this.at = entries.indexOf(chosen);
      if (this.at >= 0) {
        const top = this.at * ROW;
        const height = this.root.clientHeight;
        if (top < this.root.scrollTop) this.root.scrollTop = top;
        else if (top + ROW > this.root.scrollTop + height) this.root.scrollTop = top + ROW - height;
      }
      this.draw(true);
    }

    draw(isNew = false) {
      const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - SPARE);
      const last = Math.min(
        this.entries.length,
        Math.ceil((this.root.scrollTop + this.root.clientHeight) / ROW) + SPARE,
      );
      if (!isNew && first === this.first && last === this.last) return;
      [this.first, this.last] = [first, last];
      const options = [];
      for (let at = first; at < last; at += 1) options.push(this.option(at));
      this.inner.replaceChildren(...options);
      if (this.at >= first && this.at < last) this.root.setAttribute("aria-activedescendant", `option-${this.at}`);
      else this.root.removeAttribute("aria-activedescendant");
    }

    option(at) {
      const node = el(
        "div",
        {
          class: "option",
          role: "option",
          id: `option-${at}`,
          "aria-selected": String(at === this.at),
          "aria-setsize": this.entries.length,
          "aria-posinset": at + 1,
          onclick: () => this.choose(this.entries[at]),
        },
        this.row(this.entries[at]),
      );
      node.style.top = `${at * ROW}px`;
      return node;
    }

    key(event) {
      if (page.dom.hasModifier(event)) return;
      const last = this.entries.length - 1;
      const next = {
        ArrowDown: this.at + 1,
        ArrowUp: this.at - 1,
        PageDown: this.at + PAGE,
        PageUp: this.at - PAGE,
        Home: 0,
        End: last,
      }[event.key];
      if (next === undefined || last < 0) return;
      event.preventDefault();
      this.choose(this.entries[Math.min(last, Math.max(0, next))]);
    }

    destroy() {
      this.resizes.disconnect();
    }
  }

  page.List = List;
})((globalThis.verlLikeReport ??= {}));
