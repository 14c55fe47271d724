"use strict";
// The choice of one run, in the views that show one at a time.
(function (page) {
  const { el, select, visible } = page.dom;

  /** Return the index of the run in the address, or 0. */
  function picked(head, params) {
    const index = Number(params.get("run") ?? 0);
    return Number.isInteger(index) && index >= 0 && index < head.runs.length ? index : 0;
  }

  /** Make the select of the run, if there are several; another run forgets what belongs to this one. */
  function picker(head, index) {
    if (head.runs.length < 2) return el("span", {});
    const pairs = head.runs.map((run, at) => [String(at), visible(run.name)]);
    return el(
      "div",
      { class: "picker" },
      select("Run", pairs, String(index), (value) => {
        location.hash = page.route.hash(page.route.current().view, { run: value });
      }),
    );
  }

  page.runs = { picked, picker };
})((globalThis.verlLikeReport ??= {}));
