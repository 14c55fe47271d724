"use strict";
// An episode: its messages turn by turn, with reasoning, tool calls, and the forks of a rewritten context.
(function (page) {
  const { el, visible } = page.dom;
  const { format } = page;

  /** Return JSON with indentation, or the text as it is. */
  function pretty(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  }

  function call({ name, arguments: text }, query) {
    return el(
      "div",
      { class: "call" },
      el("div", { class: "call-name" }, "calls ", el("code", {}, page.dom.inert(name ?? "", query))),
      page.texts.pre(pretty(text ?? ""), { query }),
    );
  }

  /** Make a message. ``turn`` is {number, tokens, reward} for one that the policy wrote. */
  function message({ role, content, reasoning, calls, name }, { turn, query }) {
    const facts =
      turn &&
      [
        `turn ${turn.number}`,
        turn.tokens !== undefined && format.count(turn.tokens, "token"),
        Number.isFinite(turn.reward) && `reward ${format.short(turn.reward)}`,
      ].filter(Boolean);
    return el(
      "li",
      { class: `message role-${["system", "user", "assistant", "tool"].includes(role) ? role : "other"}` },
      el(
        "div",
        { class: "message-head" },
        el("span", { class: "role" }, visible(role)),
        name && el("code", {}, visible(name)),
        facts && el("span", { class: "muted" }, facts.join(" \u00b7 ")),
      ),
      reasoning &&
        el(
          "details",
          { class: "reasoning", open: Boolean(query) },
          el("summary", {}, `Reasoning, ${format.count(reasoning.length, "character")}`),
          page.texts.pre(reasoning, { query }),
        ),
      content && page.texts.pre(content, { query }),
      calls?.map((each) => call(each, query)),
    );
  }

  /** Return how many messages two contexts begin with in common. */
  function shared(left, right) {
    let num = 0;
    while (num < left.length && num < right.length && JSON.stringify(left[num]) === JSON.stringify(right[num]))
      num += 1;
    return num;
  }

  /** Return [{sample, position}] of the rows of the same episode, sorted by row; none if it has one row alone. */
  function contexts(sample, shard) {
    const found = shard
      .map((each, position) => ({ sample: each, position }))
      .filter(({ sample: each }) => each.uid === sample.uid && each.sample === sample.sample && each.messages)
      .sort((left, right) => left.sample.row - right.sample.row);
    return new Set(found.map(({ sample: each }) => each.row)).size === found.length && found.length > 1 ? found : [];
  }

  /** Make the list of the episode's contexts: each row is one, which shares its first messages with the one before. */
  function forks(sample, found, link) {
    if (!found.length) return null;
    const items = found.map(({ sample: each, position }, at) => {
      const common = at && shared(found[at - 1].sample.messages, each.messages);
      const text = at
        ? `shares ${format.count(common, "message")} with context ${at}, then differs`
        : format.count(each.messages.length, "message");
      return el(
        "li",
        {},
        el("a", { href: link(position), "aria-current": each.row === sample.row ? "true" : null }, `Context ${at + 1}`),
        el("span", { class: "muted" }, ` ${text}`),
      );
    });
    return el(
      "nav",
      { class: "forks", "aria-label": "Contexts of the episode" },
      el("p", {}, `The context was rewritten: this episode has ${found.length} rows.`),
      el("ol", {}, items),
    );
  }

  /** Make the conversation: the messages of the prompt folded, then the turns. */
  function block(sample, { shard, link, query }) {
    const found = contexts(sample, shard);
    const at = found.findIndex(({ sample: each }) => each.row === sample.row);
    const start = at > 0 ? shared(found[at - 1].sample.messages, sample.messages) : -1;
    let number = 0;
    const items = sample.messages.map((each, index) => {
      const isTurn = each.role === "assistant" && index >= sample.num_prompt_messages;
      const turn = isTurn ? { number: (number += 1), ...sample.turns?.[number - 1] } : null;
      const item = message(each, { turn, query });
      return index === start
        ? [el("li", { class: "fork" }, `From here this context differs from context ${at}.`), item]
        : item;
    });
    const before = items.slice(0, sample.num_prompt_messages);
    return el(
      "section",
      { class: "episode", "aria-label": "Episode" },
      forks(sample, found, link),
      before.length > 0 &&
        el(
          "details",
          { class: "prompt-messages", open: true },
          el("summary", {}, `Prompt: ${format.count(before.length, "message")}`),
          el("ol", {}, before),
        ),
      el("ol", { class: "turns" }, items.slice(sample.num_prompt_messages)),
    );
  }

  page.episode = { block };
})((globalThis.verlLikeReport ??= {}));
