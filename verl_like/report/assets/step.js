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

  /** Make a link to a part of a run, at the nearest of its steps; null without any. */
  function link(text, view, steps, { step, ...params }) {
    const nearest = nearestStep(steps, step);
    if (nearest === null) return null;
    const href = page.route.hash(view, { ...params, step: nearest });
    return el("a", { href }, nearest === step ? text : `${text} of step ${nearest}`);
  }

  function links(head, step) {
    return head.runs.flatMap((each, run) => {
      const name = head.runs.length === 1 ? "" : `${page.dom.visible(each.name)}: `;
      const sampled = each.samples?.steps.filter(({ kind }) => kind === "train").map((entry) => entry.step) ?? [];
      return [
        link(`${name}samples`, "samples", sampled, { run, kind: "train", step }),
        link(`${name}processes`, "time", each.lanes.steps ?? [], { run, step }),
      ];
    });
  }

  /** Show the bar for the step of the address, or hide it. */
  function follow(params) {
    const bar = document.getElementById("step-bar");
    const step = params.get("step") ? Number(params.get("step")) : NaN;
    bar.hidden = !Number.isFinite(step);
    page.charts.setStep(bar.hidden ? null : step);
    if (bar.hidden) return;
    const clear = () => page.route.update({ step: "" }, true);
    const close = page.dom.button("\u00d7", clear, { "aria-label": "Clear the chosen step" });
    bar.replaceChildren(...[el("strong", {}, `Step ${step}`), ...links(page.data.head(), step), close].filter(Boolean));
  }

  function hide() {
    document.getElementById("step-bar").hidden = true;
  }

  page.step = { follow, hide, nearestStep };
})((globalThis.verlLikeReport ??= {}));
