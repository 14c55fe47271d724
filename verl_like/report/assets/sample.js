"use strict";
// One sample: what it was asked, what it answered, how it was scored, and its siblings.
(function (page) {
  const { el, visible, button, copyButton } = page.dom;
  const { format } = page;

  function term(name, ...value) {
    return el("div", {}, el("dt", {}, name), el("dd", {}, value));
  }

  /** Return the numbers and words on a sample; what it does not have is left out. */
  function figures(sample) {
    const { score, components, failure, advantage, length, finish, source, seconds } = sample;
    const range =
      Number.isFinite(sample.advantage_min) && sample.advantage_min !== sample.advantage_max
        ? ` (${format.short(sample.advantage_min)} to ${format.short(sample.advantage_max)})`
        : "";
    return el(
      "dl",
      { class: "figures" },
      score !== null && term("score", el("span", { class: "score" }, format.short(score))),
      Object.entries(components).map(([name, value]) =>
        term(visible(name), typeof value === "number" ? format.short(value) : visible(value ?? "\u2013")),
      ),
      advantage !== null && term("advantage", format.short(advantage), range),
      Number.isFinite(length) && term("length", format.quantity(length, "tokens")),
      finish && term("finish", visible(finish)),
      source && term("data source", visible(source)),
      Number.isFinite(seconds) && term("scored in", format.seconds(seconds)),
      failure && el("div", { class: "failed" }, el("dt", {}, "failure"), el("dd", {}, visible(failure))),
    );
  }

  /** Make the siblings: links to all samples of the group, with their scores. */
  function siblings(entry, { index, group, link }) {
    if (group.length < 2) return null;
    const { score, row, failure } = index.columns;
    const scores = group.map((each) => score[each]).filter((value) => value !== null);
    const [low, high] = [Math.min(...scores), Math.max(...scores)];
    const range = low === high ? "all scores are equal" : `scores from ${format.short(low)} to ${format.short(high)}`;
    const item = (each) => {
      const attributes = {
        href: link(each),
        "aria-current": each === entry ? "true" : null,
        class: failure[each] ? "has-failed" : null,
      };
      const node = el(
        "a",
        attributes,
        el("span", { class: "muted" }, `#${row[each]} `),
        format.short(score[each]),
        failure[each] && " failed",
      );
      node.style.setProperty("--share", `${index.share(score[each])}%`);
      return el("li", {}, node);
    };
    return el(
      "nav",
      { class: "siblings", "aria-label": "Siblings of the group" },
      el(
        "h3",
        {},
        "Group ",
        el("span", { class: "muted" }, `${group.length} samples, ${scores.length ? range : "no scores"}`),
      ),
      el("ol", {}, group.map(item)),
    );
  }

  /** Make the head of a sample: its name, buttons to its neighbours in the list, its link. */
  function heading(entry, { index, neighbours, address }) {
    const { row, step } = index.columns;
    const to = (text, move) =>
      button(text, () => neighbours.go(neighbours[move]), {
        "data-keep": move,
        "aria-label": `${move === "next" ? "Next" : "Previous"} sample`,
        disabled: neighbours[move] === undefined,
      });
    const where = `of ${index.kind(entry) === "val" ? "the validation after " : ""}step ${step[entry]}`;
    return el(
      "div",
      { class: "sample-head" },
      el("h2", { id: "sample-title" }, `Sample ${row[entry]} `, el("span", { class: "muted" }, where)),
      el(
        "div",
        { class: "buttons" },
        to("\u2190", "previous"),
        to("\u2192", "next"),
        copyButton(new URL(address, location.href).href, "link to this sample", "Copy link"),
      ),
    );
  }

  function extras({ extra, cut }) {
    const rows = Object.entries(extra);
    if (!rows.length) return null;
    return el(
      "details",
      { class: "extras" },
      el("summary", {}, `More fields (${rows.length})`),
      el(
        "dl",
        {},
        rows.map(([name, value]) => [
          el("dt", {}, visible(name)),
          el("dd", { dir: "auto" }, page.texts.pre(value), page.texts.leftOut(cut[name])),
        ]),
      ),
    );
  }

  /** Make the texts: an episode turn by turn, or prompt and response, with the tokens of the shown context. */
  function texts(sample, options) {
    const { prompt, response, ground_truth: truth, cut, messages } = sample;
    const { query } = options;
    const [contexts, shown] = page.episode.contextsOf(sample, options);
    // Hits of a search are marked in the text; the shades are back when the search is over.
    const tokens = query ? null : contexts[shown].tokens;
    const isShaded = tokens?.text.length > 0;
    const block = (title, text, name) => page.texts.block(title, text, { query, cut: cut[name] });
    return [
      messages?.length ? page.episode.block(sample, options) : block("Prompt", prompt, "prompt"),
      isShaded
        ? page.texts.block(
            messages?.length ? "Tokens of the response" : "Response",
            tokens.text.join(""),
            page.tokens.block(tokens, options.tokens),
          )
        : !messages?.length && block("Response", response, "response"),
      truth && block("Ground truth", truth, "ground_truth"),
      ["messages", "failure", "components"].map((name) => page.texts.leftOut(cut[name], `the ${name}`)),
      extras(sample),
    ];
  }

  /** Fill a node with a sample; the control that had the focus has it again. */
  function fill(node, sample, entry, options) {
    const kept = node.contains(document.activeElement) ? document.activeElement.dataset.keep : undefined;
    const parts = [heading(entry, options), figures(sample), siblings(entry, options), texts(sample, options)];
    node.replaceChildren(...parts.flat(Infinity).filter(Boolean));
    if (kept) node.querySelector(`[data-keep="${kept}"]`)?.focus();
  }

  page.sample = { fill };
})((globalThis.verlLikeReport ??= {}));
