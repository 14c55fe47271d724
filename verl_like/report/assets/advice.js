"use strict";
// Advisories: alarms first, then suggestions for tuning, each with its metric, its number and the option to change.
(function (page) {
  const { el, visible, copyButton } = page.dom;
  const LABELS = { alarm: "Alarm", tuning: "Tuning" };

  /** Make an advisory, with links to its curve and its step. */
  function entry(advisory, { run, index, isOnly, heading }) {
    const { level, title, text, metric, step, knob } = advisory;
    const hasCurve = metric && page.data.head().panels.some(({ metrics }) => metrics.includes(metric));
    const where = hasCurve && el("a", { href: page.route.hash("curves", { metric, step }) }, visible(metric));
    const found = run.samples?.steps.find((each) => each.step === step);
    const samples =
      found &&
      el("a", { href: page.route.hash("samples", { run: index, kind: found.kind, step }) }, `samples of step ${step}`);
    return el(
      "article",
      { class: `advisory is-${level}` },
      el("span", { class: "level" }, LABELS[level]),
      el(
        "div",
        {},
        el(heading, {}, !isOnly && `${visible(run.name)}: `, visible(title)),
        el("p", {}, visible(text)),
        el(
          "p",
          { class: "remedy" },
          where,
          samples,
          knob && [el("code", {}, visible(knob)), copyButton(knob, "the option")],
        ),
      ),
    );
  }

  function show(root) {
    const head = page.data.head();
    const isOnly = head.runs.length === 1;
    for (const [level, title] of Object.entries({ alarm: "Alarms", tuning: "Suggestions for tuning" })) {
      const found = page.summary.advisories(head, level);
      if (!found.length) continue;
      root.append(
        el(
          "section",
          {},
          el("h2", {}, title),
          found.map(({ run, index, advisory }) => entry(advisory, { run, index, isOnly, heading: "h3" })),
        ),
      );
    }
    return { update: () => true, destroy: () => {} };
  }

  page.advice = { entry };
  page.views ??= {};
  page.views.advice = {
    title: "Advice",
    isAvailable: (head) => head.runs.some(({ advisories }) => advisories.length),
    show,
  };
})((globalThis.verlLikeReport ??= {}));
