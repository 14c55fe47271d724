"use strict";
// Texts of samples: inert, isolated in their direction, and long ones piece by piece.
(function (page) {
  const { el, inert, copyButton } = page.dom;
  const { format } = page;
  const PIECE = 20_000; // characters shown at once
  const MAX_TO_HIT = 200_000; // shown at once if that is what the first hit of the search needs

  const MAY_SCROLL = 1500; // characters from which a text may need to be scrolled, by keyboard too

  /** Return how many characters are shown at first. */
  function firstPiece(text, query) {
    const hit = query ? text.toLowerCase().indexOf(query.toLowerCase()) : -1;
    return hit > PIECE && hit < MAX_TO_HIT ? hit + 1000 : PIECE;
  }

  /** Make a preformatted text, with a button for the rest of a long one. */
  function pre(text, { query = "" } = {}) {
    let num = firstPiece(text, query);
    const node = el("pre", { class: "text", dir: "auto", tabindex: text.length > MAY_SCROLL ? 0 : null });
    const more = el("button", {
      type: "button",
      class: "more",
      onclick: () => {
        num += 5 * PIECE;
        fill();
      },
    });
    function fill() {
      // A pair of surrogates stays together.
      if (/[\ud800-\udbff]/u.test(text[num - 1] ?? "")) num += 1;
      node.replaceChildren(...inert(text.slice(0, num), query));
      more.hidden = num >= text.length;
      more.textContent = `Show more (${format.count(text.length - num, "character")} left)`;
    }
    fill();
    return [node, more];
  }

  /** Make a titled block of a text; ``cut`` counts the characters that the report left out. */
  function block(title, text, { query, cut, tools, body }) {
    const size = el("span", { class: "muted" }, format.count(text.length, "character"));
    const left =
      cut && `The report leaves out ${format.count(cut, "character")} of this text; the run's folder has them.`;
    return el(
      "section",
      { class: "text-block" },
      el("div", { class: "block-head" }, el("h3", {}, title), size, copyButton(text, title.toLowerCase()), tools),
      body ?? pre(text, { query }),
      left && el("p", { class: "note" }, left),
    );
  }

  page.texts = { pre, block };
})((globalThis.verlLikeReport ??= {}));
