"use strict";
// The view of samples: trend, step, sample. Its whole state is in the address.
(function (page) {
  const { el, visible, button, failure, announce } = page.dom;
  const { format, route, filters } = page;
  const TYPING_MS = 350;
  const NO_SAMPLE = { row: "", at: "", context: "" }; // a change of filters forgets the chosen sample

  class Samples {
    constructor(root, head, params) {
      this.root = root;
      this.picked = page.runs.picked(head, params);
      this.run = head.runs[this.picked];
      this.params = params;
      root.append(page.runs.picker(head, this.picked));
    }

    /** Read the index and make the parts. */
    async start() {
      if (!this.run.samples) {
        this.root.append(el("p", { class: "muted" }, "This run has no samples."));
        return;
      }
      const columns = await page.data.shard(this.run.samples.index);
      if (!this.root.isConnected) return;
      this.index = new page.Index(columns, this.run.samples);
      const toStep = (step) => route.update({ step, ...NO_SAMPLE }, true);
      page.charts.begin({ onStep: toStep });
      this.stepper = new page.Stepper({ id: "sample-step", choose: toStep, hasAll: true });
      this.search = new page.Search(() => this.showList());
      this.trend = new page.Trend();
      this.list = new page.List({
        label: "Samples",
        row: (entry) => this.row(entry),
        choose: (entry) => location.replace(this.address(entry)),
      });
      this.stepper.listen(this.list.root);
      this.form = new page.filters.Form(this.index, this.run.samples, (changes) =>
        route.update({ ...NO_SAMPLE, ...changes }, true),
      );
      this.count = el("p", { class: "count", role: "status" });
      this.detail = el("article", { class: "sample", "aria-labelledby": "sample-title" });
      this.stepper.root.append(this.words());
      this.root.append(
        this.stepper.root,
        this.trend.root,
        this.form.root,
        el("div", { class: "two" }, el("div", { class: "list-pane" }, this.count, this.list.root), this.detail),
      );
      this.render();
    }

    /** Make the input of the search. */
    words() {
      this.input = el("input", {
        type: "search",
        placeholder: "Search texts",
        "aria-label": "Search the texts of the samples",
        oninput: () => {
          clearTimeout(this.typing);
          this.typing = setTimeout(() => route.update({ q: this.input.value.trim(), ...NO_SAMPLE }, true), TYPING_MS);
        },
      });
      return this.input;
    }

    /** Show the state of the address. */
    render() {
      const { columns, entries } = this.index;
      this.state = filters.read(this.run.samples, this.params);
      const { step, steps, query, sort } = this.state;
      const everywhere = entries.filter(filters.test(columns, this.state, this.params));
      this.stepper.set(steps, step);
      this.form.show(this.params);
      this.trend.set(columns, everywhere, step);
      if (document.activeElement !== this.input) this.input.value = query;
      this.here = filters.sorted(
        step === null ? everywhere : everywhere.filter((entry) => columns.step[entry] === step),
        columns,
        sort,
      );
      if (query) this.search.start(this.index, this.searched(), query);
      else this.search.clear();
      this.showList();
    }

    /** Return the steps that are searched. */
    searched() {
      return this.run.samples.steps.filter(
        ({ kind, step }) => kind === this.state.kind && (this.state.step === null || step === this.state.step),
      );
    }

    /** Show the list of the samples that pass, and the chosen one or the first. */
    showList() {
      const { kind, at, row } = this.state;
      this.shown = this.search.hits ? this.here.filter((entry) => this.search.hits.has(entry)) : this.here;
      this.showCount();
      const chosen = (row === null ? undefined : this.index.find(kind, at, row)) ?? this.shown[0];
      this.list.set(this.shown, chosen);
      if (chosen !== undefined) {
        this.showSample(chosen);
        return;
      }
      this.current = null;
      this.detail.replaceChildren(
        el(
          "p",
          { class: "muted", id: "sample-title" },
          this.search.progress ? "Searching." : "No sample passes the filters.",
        ),
      );
    }

    showCount() {
      const { query, step, steps } = this.state;
      const text = [format.count(this.shown.length, "sample"), this.search.progress].filter(Boolean).join(" \u00b7 ");
      const wider = query && step !== null && steps.length > 1;
      this.count.replaceChildren(
        text,
        wider
          ? button(`search all ${steps.length} steps`, () => route.update({ step: "all", ...NO_SAMPLE }, true))
          : "",
      );
    }

    /** Make the two lines of a sample in the list. */
    row(entry) {
      const { score, step, row, length, failure: failures, text } = this.index.columns;
      const bar = el("span", { class: "score-bar" });
      bar.style.setProperty("--share", `${this.index.share(score[entry])}%`);
      const finish = this.index.unusualFinish(entry);
      const excerpt = (this.search.hits?.get(entry) ?? text[entry]).replaceAll(/\s+/gu, " ");
      const where = this.state.step === null ? `${step[entry]} \u00b7 #${row[entry]}` : `#${row[entry]}`;
      return [
        el(
          "span",
          { class: "line" },
          el("span", { class: "where" }, where),
          bar,
          el("span", { class: "number" }, format.short(score[entry])),
          el("span", { class: "tokens-count" }, `${format.short(length[entry])} tok`),
          failures[entry] && el("span", { class: "badge is-alarm" }, "failed"),
          finish && el("span", { class: "badge" }, visible(finish)),
        ),
        el("span", { class: "line excerpt", dir: "auto" }, page.dom.inert(excerpt, this.state.query)),
      ];
    }

    /** Return the address of an entry: with the present filters, or the shortest. */
    address(entry, keepsFilters = true) {
      if (!keepsFilters) {
        const { step, row } = this.index.columns;
        const own = { run: this.picked, kind: this.index.kind(entry), step: step[entry], row: row[entry] };
        return route.hash("samples", { ...own, shade: this.params.get("shade") });
      }
      const position = this.position(entry);
      return route.hash("samples", { ...Object.fromEntries(this.params), ...NO_SAMPLE, ...position });
    }

    /** Return where an entry is, among the samples that pass the present filters. */
    position(entry) {
      const { step, row } = this.index.columns;
      if (this.state.step === null) return { step: "all", at: step[entry], row: row[entry] };
      return { kind: this.index.kind(entry), row: row[entry] };
    }

    /** Return what a sample shows in addition to itself. */
    surroundings(entry) {
      const { index, state, shown } = this;
      const at = shown.indexOf(entry);
      const go = (target) => location.replace(this.address(target));
      return {
        index,
        query: state.query,
        group: index.groupOf(entry),
        address: this.address(entry, false),
        link: (target) => this.address(target),
        context: this.params.get("context"),
        linkOfContext: (number) =>
          route.hash("samples", { ...Object.fromEntries(this.params), ...this.position(entry), context: number }),
        tokens: {
          shade: this.params.get("shade"),
          reach: index.reach(entry),
          onShade: (shade) => route.update({ shade }, true),
        },
        neighbours: { previous: shown[at - 1], next: at >= 0 ? shown[at + 1] : undefined, go },
      };
    }

    async showSample(entry) {
      const key = [
        entry,
        this.params.get("shade"),
        this.params.get("context"),
        this.state.query,
        this.shown.length,
        this.shown.indexOf(entry),
      ].join(" ");
      if (this.current === key) return;
      this.current = key;
      const { step, row } = this.index.columns;
      this.detail.setAttribute("aria-busy", "true");
      try {
        const shard = await page.data.shard(this.index.stepOf(entry).shard);
        if (this.current !== key || !this.root.isConnected) return;
        page.sample.fill(this.detail, shard[row[entry]], entry, this.surroundings(entry));
        announce(`Sample ${row[entry]} of step ${step[entry]}`);
      } catch (error) {
        if (this.current !== key || !this.root.isConnected) return;
        this.detail.replaceChildren(el("p", { id: "sample-title" }, "This sample cannot be shown."), failure(error));
      }
      this.detail.removeAttribute("aria-busy");
    }

    update(params) {
      if (page.runs.picked(page.data.head(), params) !== this.picked) return false;
      this.params = params;
      if (this.index) this.render();
      return true;
    }

    destroy() {
      clearTimeout(this.typing);
      this.search?.clear();
      this.list?.destroy();
      this.trend?.clear();
    }
  }

  function show(root, params) {
    const view = new Samples(root, page.data.head(), params);
    const ready = view.start().catch((error) => root.append(failure(error)));
    return { ready, update: (next) => view.update(next), destroy: () => view.destroy() };
  }

  page.views ??= {};
  page.views.samples = {
    title: "Samples",
    isAvailable: (head) => head.runs.some(({ samples }) => samples),
    show,
  };
})((globalThis.verlLikeReport ??= {}));
