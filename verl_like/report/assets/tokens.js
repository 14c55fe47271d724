"use strict";
// A response token by token, shaded by what the trainer knows of each.
(function (page) {
  const { el, visible, button, select, announce, hasModifier } = page.dom;
  const { format } = page;
  const CHUNK = 3000; // tokens drawn at once
  const LEVELS = 4; // of each sign
  const STEPS = 6; // of a scale without sign
  const OUTLIERS = 0.02; // part of the values that is beyond the ends of the scale
  const COLUMNS = {
    advantage: { title: "advantage", scale: "signed" },
    log_prob_gap: { title: "log-prob gap", unit: "nats", scale: "signed" },
    entropy: { title: "entropy", unit: "nats", scale: "unsigned" },
    log_prob: { title: "log-prob", unit: "nats", scale: "unsigned" },
    version: { title: "weight version", scale: "ranks" },
  };

  /** Return the columns by which tokens can be shaded. */
  function columnsOf({ columns }) {
    return Object.keys(COLUMNS).filter((name) => columns[name]?.some((value) => value !== null));
  }

  function quantile(values, part) {
    return [...values].sort((left, right) => left - right)[Math.floor(part * (values.length - 1))];
  }

  /** Return {level(value), marks}: the shade of a value, and the shades of the legend with their texts. */
  function scaleOf(name, values, reach) {
    const { scale, unit = "" } = COLUMNS[name];
    const known = values.filter((value) => value !== null);
    if (scale === "ranks") {
      const distinct = [...new Set(known)].sort((left, right) => left - right);
      const level = (value) => `q${Math.round((STEPS * distinct.indexOf(value)) / Math.max(1, distinct.length - 1))}`;
      const picked =
        distinct.length <= STEPS
          ? distinct
          : [distinct[0], distinct[Math.floor(distinct.length / 2)], distinct[distinct.length - 1]];
      return { level, marks: picked.map((value) => [level(value), String(value)]) };
    }
    const most = reach || quantile(known.map(Math.abs), 1 - OUTLIERS) || 1;
    const text = (value) => format.quantity(value, unit);
    if (scale === "signed") {
      const level = (value) => `l${Math.max(-LEVELS, Math.min(LEVELS, Math.round((LEVELS * value) / most)))}`;
      const marks = Array.from({ length: 2 * LEVELS + 1 }, (_, at) => [
        `l${at - LEVELS}`,
        at === 0 ? text(-most) : at === LEVELS ? "0" : at === 2 * LEVELS ? text(most) : "",
      ]);
      return { level, marks };
    }
    const sign = known.every((value) => value <= 0) ? -1 : 1; // log-probs grow downwards
    const level = (value) => `q${Math.max(0, Math.min(STEPS, Math.round((STEPS * sign * value) / most)))}`;
    const marks = Array.from({ length: STEPS + 1 }, (_, at) => [
      `q${at}`,
      at === 0 ? "0" : at === STEPS ? text(sign * most) : "",
    ]);
    return { level, marks };
  }

  function legend(scale, hasMasked) {
    return el(
      "div",
      { class: "shades" },
      scale?.marks.map(([level, text]) => el("span", { class: "shade", "data-level": level }, text)),
      hasMasked && el("span", { class: "token masked" }, "not trained on"),
    );
  }

  /** Return lines on a token for its tooltip: its number, its text, and its value in each column. */
  function facts(tokens, at) {
    const { mask, ...columns } = tokens.columns;
    const rows = Object.entries(COLUMNS)
      .filter(([name]) => Number.isFinite(columns[name]?.[at]))
      .map(([name, { title, unit = "" }]) => [title, format.quantity(columns[name][at], unit)]);
    return [["token", String(at)], ...rows, ...(mask ? [["trained on", mask[at] ? "yes" : "no"]] : [])];
  }

  function showTip(span, tokens, at) {
    const rows = facts(tokens, at).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
    page.tip.show(
      [el("code", {}, JSON.stringify(visible(tokens.text[at]))), el("dl", {}, rows)],
      span.getBoundingClientRect(),
    );
  }

  /** Make the tokens of a sample; one of them is in the tab order, arrows move to the others. */
  function spans(tokens, scale, name) {
    const root = el("div", {
      class: "tokens text",
      dir: "auto",
      role: "group",
      "aria-label": "Tokens of the response. Arrow keys move from token to token.",
    });
    const values = name ? tokens.columns[name] : null;
    const mask = tokens.columns.mask;
    let num = 0;
    const more = button("", () => add(), { class: "more" });
    const span = (at) => {
      const value = values?.[at];
      return el(
        "span",
        {
          class: mask && mask[at] === 0 ? "token masked" : "token",
          "data-at": at,
          "data-level": value === null || value === undefined ? null : scale.level(value),
          tabindex: at === 0 ? 0 : -1,
        },
        visible(tokens.text[at]).replaceAll("\n", "\u21b5\n"),
      );
    };
    function add() {
      const end = Math.min(tokens.text.length, num + CHUNK);
      const nodes = [];
      for (; num < end; num += 1) nodes.push(span(num));
      root.append(...nodes);
      more.hidden = num === tokens.text.length;
      more.textContent = `Show more tokens (${format.count(tokens.text.length - num, "token")} left)`;
    }
    add();
    listen(root, tokens);
    return [root, more];
  }

  function listen(root, tokens) {
    const at = (event) => event.target.closest?.("[data-at]");
    const over = (event) => {
      const span = at(event);
      if (span) showTip(span, tokens, Number(span.dataset.at));
    };
    root.addEventListener("mouseover", over);
    root.addEventListener("mouseleave", page.tip.hide);
    root.addEventListener("focusin", over);
    root.addEventListener("focusout", page.tip.hide);
    root.addEventListener("keydown", (event) => {
      if (hasModifier(event)) return;
      const span = at(event);
      const next = {
        ArrowRight: span?.nextElementSibling,
        ArrowLeft: span?.previousElementSibling,
        Home: root.firstElementChild,
        End: root.lastElementChild,
      }[event.key];
      if (!next) return;
      event.preventDefault();
      event.stopPropagation();
      span.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      announce(
        facts(tokens, Number(next.dataset.at))
          .map((pair) => pair.join(" "))
          .join(", "),
      );
    });
  }

  /** Return the choice of the column with its legend, and the tokens. ``reach`` has the ends of scales by column. */
  function block(tokens, { shade, reach, onShade }) {
    const names = columnsOf(tokens);
    const name = names.includes(shade) ? shade : shade === "none" ? null : (names[0] ?? null);
    const scale = name && scaleOf(name, tokens.columns[name], reach[name]);
    const titles = names.map((each) => [each, COLUMNS[each].title]);
    const choice = names.length > 0 && select("Shade by", [...titles, ["none", "nothing"]], name ?? "none", onShade);
    if (choice) choice.querySelector("select").dataset.keep = "shade";
    return { tools: [choice, legend(scale, tokens.columns.mask?.includes(0))], body: spans(tokens, scale, name) };
  }

  page.tokens = { block };
})((globalThis.verlLikeReport ??= {}));
