"use strict";
// Texts of samples: inert, isolated in their direction.
(function (page) {
  const { el, inert, copyButton } = page.dom;
  const { format } = page;
  const MAY_SCROLL = 1500; // characters from which a text may need to be scrolled, by keyboard too

  function pre(text, query = "") {
    const tabindex = text.length > MAY_SCROLL ? 0 : null;
    return el("pre", { class: "text", dir: "auto", tabindex }, inert(text, query));
  }

  /** Make the note on ``num`` characters that the report left out; null if it has all. */
  function leftOut(num, what = "this text") {
    if (!num) return null;
    const characters = format.count(num, "character");
    return el("p", { class: "note" }, `The report leaves out ${characters} of ${what}; the run's folder has them.`);
  }

  /** Make a titled block of a text; ``cut`` counts the characters that the report left out. */
  function block(title, text, { query, cut, tools, body }) {
    const size = el("span", { class: "muted" }, format.count(text.length, "character"));
    return el(
      "section",
      { class: "text-block" },
      el("div", { class: "block-head" }, el("h3", {}, title), size, copyButton(text, title.toLowerCase()), tools),
      body ?? pre(text, query),
      leftOut(cut),
    );
  }

  page.texts = { pre, leftOut, block };
})((globalThis.verlLikeReport ??= {}));
