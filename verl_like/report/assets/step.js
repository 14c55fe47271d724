"use strict";
// The bar of the chosen step, at the bottom of the window: from a trend to the samples and the times of a step.
(function (page) {
  const { el } = page.dom;

  /** Return the entry of a list of steps that is nearest to a step. */
  function nearestStep(steps, step) {
    return steps.reduce(
      (best, each) => (best === null || Math.abs(each - step) < Math.abs(best - step) ? each : best),
      null,
    );
  }

  /** Make a link to the samples or times of the nearest step that has them. */
  function link(text, view, { run, step, steps }) {
    const nearest = nearestStep(steps, step);
    if (nearest === null) return null;
    const params =
      view === "samples" ? { run: run || "", kind: "train", step: nearest } : { run: run || "", step: nearest };
    return el("a", { href: page.route.hash(view, params) }, nearest === step ? text : `${text} of step ${nearest}`);
  }

  function links(head, step) {
    const isOnly = head.runs.length === 1;
    return head.runs
      .flatMap((run, index) => {
        const name = isOnly ? "" : `${page.dom.visible(run.name)}: `;
        const sampled = run.samples?.steps.filter(({ kind }) => kind === "train").map((entry) => entry.step) ?? [];
        return [
          link(`${name}samples`, "samples", { run: index, step, steps: sampled }),
          link(`${name}processes`, "time", { run: index, step, steps: run.lanes?.steps ?? [] }),
        ];
      })
      .filter(Boolean);
  }

  /** Show the bar for the step of the address, or hide it. */
  function follow(params) {
    const bar = document.getElementById("step-bar");
    const step = params.get("step") === null || params.get("step") === "" ? NaN : Number(params.get("step"));
    bar.hidden = !Number.isFinite(step);
    page.charts.setStep(bar.hidden ? null : step);
    if (bar.hidden) return;
    const close = el(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-label": "Forget the step",
        onclick: () => page.route.update({ step: "" }, true),
      },
      "\u00d7",
    );
    bar.replaceChildren(el("strong", {}, `Step ${step}`), ...links(page.data.head(), step), close);
  }

  function hide() {
    document.getElementById("step-bar").hidden = true;
  }

  page.step = { follow, hide, nearestStep };
})((globalThis.verlLikeReport ??= {}));
