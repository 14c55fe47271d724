"use strict";
// The first screenful: alarms and key numbers of each run.
(function (page) {
  const { el, visible, table } = page.dom;
  const MAX_ALARMS = 4;
  const STATUSES = { __proto__: null, finished: "good", running: "accent", interrupted: "tuning", stopped: "alarm" };

  /** Return [{run, index, advisory}] of a level over all runs; the index is that of the run. */
  function advisories(head, level) {
    return head.runs.flatMap((run, index) =>
      run.advisories.filter((each) => each.level === level).map((advisory) => ({ run, index, advisory })),
    );
  }

  function status(run) {
    const steps = run.total_steps ? `step ${run.step} of ${run.total_steps}` : `step ${run.step}`;
    return el(
      "span",
      { class: `status is-${STATUSES[run.status] ?? "muted"}` },
      visible(run.status),
      " ",
      el("span", { class: "steps" }, steps),
    );
  }

  function alarms(head) {
    const found = advisories(head, "alarm");
    const rest = found.length - MAX_ALARMS;
    if (!found.length) return null;
    return el(
      "section",
      { class: "alarms", "aria-label": "Alarms" },
      found
        .slice(0, MAX_ALARMS)
        .map(({ run, index, advisory }) =>
          page.advice.entry(advisory, { run, index, isOnly: head.runs.length === 1, heading: "h2" }),
        ),
      rest > 0 && el("p", {}, el("a", { href: page.route.hash("advice") }, `${rest} more`)),
    );
  }

  /** Make the sentence of runs without alarms, or return null. */
  function calm(head) {
    if (advisories(head, "alarm").length) return null;
    const num = advisories(head, "tuning").length;
    return el(
      "p",
      { class: "calm" },
      el("span", { class: "is-good" }, "No alarms."),
      " ",
      num > 0 &&
        el(
          "a",
          { href: page.route.hash("advice") },
          num === 1 ? "One suggestion for tuning." : `${num} suggestions for tuning.`,
        ),
    );
  }

  function tiles(run) {
    return el(
      "dl",
      { class: "tiles" },
      run.key_numbers.map(({ name, text, hint }) =>
        el(
          "div",
          {},
          el("dt", {}, visible(name)),
          el("dd", {}, el("span", { class: "number" }, visible(text)), el("span", { class: "hint" }, visible(hint))),
        ),
      ),
    );
  }

  /** Make a table of the key numbers of several runs. */
  function comparison(head) {
    const numbers = [...new Set(head.runs.flatMap((run) => run.key_numbers.map(({ name }) => name)))];
    const cell = (found) =>
      el("td", { class: "number", "data-tip": found?.hint || null }, found ? visible(found.text) : "\u2013");
    const rows = head.runs.map((run) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, visible(run.name)),
        el("td", {}, status(run)),
        numbers.map((wanted) => cell(run.key_numbers.find(({ name }) => name === wanted))),
      ),
    );
    const label = "Key numbers";
    return table("numbers", { words: ["Run", "Status"], numbers: numbers.map(visible), rows, label });
  }

  function make(head) {
    return el(
      "div",
      { class: "summary" },
      alarms(head),
      calm(head),
      head.runs.length === 1 ? tiles(head.runs[0]) : comparison(head),
    );
  }

  page.summary = { make, status, advisories };
})((globalThis.verlLikeReport ??= {}));
