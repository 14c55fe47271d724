"use strict";
// The first screenful: alarms and key numbers of each run.
(function (page) {
  const { el, visible } = page.dom;
  const MAX_ALARMS = 4;
  const STATUSES = { __proto__: null, finished: "good", running: "accent", interrupted: "tuning", stopped: "alarm" };

  /** Return [{run, advisory}] of a level over all runs. */
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

  /** Make the sentence of a run about which there is no alarm. */
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
          el(
            "dd",
            {},
            el("span", { class: "number" }, visible(text)),
            hint && el("span", { class: "hint" }, visible(hint)),
          ),
        ),
      ),
    );
  }

  /** Make a table of the key numbers of several runs. */
  function table(head) {
    const names = [...new Set(head.runs.flatMap((run) => run.key_numbers.map(({ name }) => name)))];
    const rows = head.runs.map((run) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, visible(run.name)),
        el("td", {}, status(run)),
        names.map((name) => {
          const number = run.key_numbers.find((each) => each.name === name);
          return el(
            "td",
            { class: "number", "data-tip": number?.hint || null },
            number ? visible(number.text) : "\u2013",
          );
        }),
      ),
    );
    return el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Key numbers" },
      el(
        "table",
        { class: "numbers" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "Run"),
            el("th", { scope: "col" }, "Status"),
            names.map((name) => el("th", { scope: "col", class: "number" }, visible(name))),
          ),
        ),
        el("tbody", {}, rows),
      ),
    );
  }

  function make(head) {
    return el(
      "div",
      { class: "summary" },
      alarms(head),
      calm(head),
      head.runs.length === 1 ? tiles(head.runs[0]) : table(head),
    );
  }

  page.summary = { make, status, advisories };
})((globalThis.verlLikeReport ??= {}));
