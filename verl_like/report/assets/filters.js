"use strict";
// Filters of samples: the values of the address, the test that they make of the index, and their controls.
(function (page) {
  const { el, button, select, visible } = page.dom;
  const { KINDS } = page.Index;
  const NAMES = ["score", "length", "failure", "source", "finish", "q", "sort"];
  const MAX_KIND = 60; // characters of the kind of a failure
  const SORTS = [
    ["", "as stored"],
    ["score", "lowest score"],
    ["-score", "highest score"],
    ["length", "shortest"],
    ["-length", "longest"],
    ["advantage", "lowest advantage"],
    ["-advantage", "highest advantage"],
  ];

  /** Return [low, high] of "low..high"; an end that is missing is infinite. */
  function limits(text) {
    const [low = "", high = ""] = (text ?? "").split("..");
    const end = (value, open) => (value === "" || Number.isNaN(Number(value)) ? open : Number(value));
    return [end(low, -Infinity), end(high, Infinity)];
  }

  function failureKind(failure) {
    return failure.split(":", 1)[0].slice(0, MAX_KIND);
  }

  /** Return the state that the address asks for; a step of null means all steps. */
  function read(samples, params) {
    const kinds = KINDS.filter((kind) => samples.steps.some((entry) => entry.kind === kind));
    const kind = kinds.includes(params.get("kind")) ? params.get("kind") : kinds[0];
    const steps = samples.steps.filter((entry) => entry.kind === kind).map(({ step }) => step);
    const asked = params.get("step");
    const step = asked === "all" ? null : asked ? page.step.nearestStep(steps, Number(asked)) : steps[steps.length - 1];
    const at = step ?? Number(params.get("at") ?? NaN);
    const row = params.get("row") ? Number(params.get("row")) : null;
    return { kind, steps, step, at, row, query: (params.get("q") ?? "").trim(), sort: params.get("sort") ?? "" };
  }

  /** Return the test of whether an entry passes all filters but those of step and words. */
  function test(columns, { kind: wanted }, params) {
    const kind = KINDS.indexOf(wanted);
    const [lowScore, highScore] = limits(params.get("score"));
    const [lowLength, highLength] = limits(params.get("length"));
    const asked = (name) => params.get(name) ?? "";
    const source = asked("source") ? columns.sources.indexOf(asked("source")) : null;
    const finish = asked("finish") ? columns.finishes.indexOf(asked("finish")) : null;
    const failure = asked("failure");
    const hasFailure = (text) =>
      !failure || (failure === "none" ? !text : failure === "any" ? Boolean(text) : failureKind(text) === failure);
    const hasScore = (score) => !asked("score") || (score !== null && score >= lowScore && score <= highScore);
    return (entry) =>
      columns.kind[entry] === kind &&
      hasScore(columns.score[entry]) &&
      columns.length[entry] >= lowLength &&
      columns.length[entry] <= highLength &&
      hasFailure(columns.failure[entry]) &&
      (source === null || columns.source[entry] === source) &&
      (finish === null || columns.finish[entry] === finish);
  }

  /** Sort entries by a column; those without a value come last. */
  function sorted(entries, columns, sort) {
    if (!SORTS.some(([key]) => key && key === sort)) return entries;
    const values = columns[sort.replace("-", "")];
    const sign = sort.startsWith("-") ? -1 : 1;
    const key = (entry) => (Number.isFinite(values[entry]) ? sign * values[entry] : Infinity);
    return [...entries].sort((left, right) => key(left) - key(right) || left - right);
  }

  /** Return the choices of a column that its samples have. */
  function choices(values, present) {
    const used = new Set(present);
    return values.flatMap((value, at) => (value !== "" && used.has(at) ? [[value, visible(value)]] : []));
  }

  /** The controls. A column with one value alone has none. */
  class Form {
    constructor(index, samples, change) {
      this.columns = index.columns;
      this.change = change;
      this.kinds = KINDS.filter((kind) => samples.steps.some((entry) => entry.kind === kind));
      this.failures = [...new Set(this.columns.failure.filter(Boolean).map(failureKind))].sort();
      this.sources = choices(this.columns.sources, this.columns.source);
      this.finishes = choices(this.columns.finishes, this.columns.finish);
      this.hasScores = this.columns.score.some((score) => score !== null);
      this.sorts = SORTS.filter(([key]) => key && this.columns[key.replace("-", "")].some((value) => value !== null));
      this.form = el("form", {
        class: "filters",
        role: "search",
        "aria-label": "Filters of samples",
        onsubmit: (event) => event.preventDefault(),
      });
      // On a narrow window the filters are folded; the style sheet hides the summary on a wide one.
      this.root = el(
        "details",
        { class: "filter-box", open: !matchMedia("(max-width: 560px)").matches },
        el("summary", {}, "Filters"),
        this.form,
      );
    }

    /** Make the controls again if the address has other values than they. */
    show(params) {
      const key = ["kind", ...NAMES].map((name) => params.get(name) ?? "").join("\n");
      if (key === this.shownKey) return;
      this.shownKey = key;
      const all = () => [...this.form.querySelectorAll("input, select")];
      const active = all().indexOf(document.activeElement);
      this.form.replaceChildren(...this.controls(params).filter(Boolean));
      all()[active]?.focus();
    }

    controls(params) {
      const choice = (label, name, first, values) =>
        select(label, [["", first], ...values], params.get(name) ?? "", (value) => this.change({ [name]: value }));
      const isFiltered = NAMES.some((name) => params.get(name));
      return [
        this.kinds.length > 1 &&
          select(
            "Samples",
            [
              ["train", "training"],
              ["val", "validation"],
            ],
            params.get("kind") ?? this.kinds[0],
            (kind) => this.change({ kind, step: "" }),
          ),
        this.hasScores && this.range("Score", "score", params),
        this.range("Length", "length", params),
        this.failures.length > 0 &&
          choice("Failure", "failure", "all", [
            ["none", "none"],
            ["any", "failed"],
            ...this.failures.map((kind) => [kind, visible(kind)]),
          ]),
        this.sources.length > 1 && choice("Data source", "source", "all", this.sources),
        this.finishes.length > 1 && choice("Finish", "finish", "all", this.finishes),
        choice("Sort", "sort", SORTS[0][1], this.sorts),
        isFiltered &&
          button("Clear filters", () => this.change(Object.fromEntries(NAMES.map((name) => [name, ""]))), {
            class: null,
          }),
      ];
    }

    /** Make two number inputs for a range "low..high" of the address. */
    range(label, name, params) {
      const [low = "", high = ""] = (params.get(name) ?? "").split("..");
      const change = () => {
        const text = `${first.value}..${second.value}`;
        this.change({ [name]: text === ".." ? "" : text });
      };
      const input = (which, value) =>
        el("input", {
          type: "number",
          step: "any",
          value,
          "aria-label": `${label}, ${which}`,
          placeholder: which,
          onchange: change,
        });
      const first = input("from", low);
      const second = input("to", high);
      return el(
        "fieldset",
        { class: "field range" },
        el("legend", {}, label),
        first,
        el("span", { "aria-hidden": "true" }, "\u2013"),
        second,
      );
    }
  }

  page.filters = { read, test, sorted, Form };
})((globalThis.verlLikeReport ??= {}));
