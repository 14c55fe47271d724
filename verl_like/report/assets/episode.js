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
      el("div", { class: "call-name" }, "calls ", el("code", {}, page.dom.inert(name, query))),
      page.texts.pre(pretty(text), query),
    );
  }

  /** Make a message. One that the policy wrote in this context has a turn: its index, tokens and reward. */
  function message({ role, content, reasoning, calls, name, turn }, query) {
    const facts =
      turn &&
      [
        `turn ${turn.index + 1}`,
        Number.isFinite(turn.tokens) && format.count(turn.tokens, "token"),
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
          page.texts.pre(reasoning, query),
        ),
      content && page.texts.pre(content, query),
      calls.map((each) => call(each, query)),
    );
  }

  /** Return how many messages two contexts begin with in common. */
  function shared(left, right) {
    let num = 0;
    while (num < left.length && num < right.length && JSON.stringify(left[num]) === JSON.stringify(right[num]))
      num += 1;
    return num;
  }

  /** Make the list of the episode's contexts: each shares its first messages with the one before. */
  function forks(contexts, shown, link) {
    const items = contexts.map(({ messages }, at) => {
      const common = at && shared(contexts[at - 1].messages, messages);
      const text = at
        ? `shares ${format.count(common, "message")} with context ${at}, then differs`
        : format.count(messages.length, "message");
      return el(
        "li",
        {},
        el("a", { href: link(at), "aria-current": at === shown ? "true" : null }, `Context ${at + 1}`),
        el("span", { class: "muted" }, ` ${text}`),
      );
    });
    return el(
      "nav",
      { class: "forks", "aria-label": "Contexts of the episode" },
      el("p", {}, `The context was rewritten: this episode has ${contexts.length} contexts.`),
      el("ol", {}, items),
    );
  }

  /** Return [contexts, number]: the contexts of an episode, and the shown one: as asked, or with a hit, or the last. */
  function contextsOf(sample, { context, query }) {
    const contexts = [...sample.earlier, sample];
    const at = Number(context ?? contexts.findLastIndex(({ messages }) => page.Search.isFound(messages, query)));
    return [contexts, contexts[at] ? at : contexts.length - 1];
  }

  /** Make the conversation: the messages of the prompt folded, then the turns. */
  function block(sample, options) {
    const { query, linkOfContext } = options;
    const [contexts, shown] = contextsOf(sample, options);
    const { messages, num_prompt_messages: numPrompt } = contexts[shown];
    const start = shown > 0 ? shared(contexts[shown - 1].messages, messages) : -1;
    const items = messages.map((each, index) =>
      index === start
        ? [el("li", { class: "fork" }, `From here this context differs from context ${shown}.`), message(each, query)]
        : message(each, query),
    );
    const before = items.slice(0, numPrompt);
    return el(
      "section",
      { class: "episode", "aria-label": "Episode" },
      contexts.length > 1 && forks(contexts, shown, linkOfContext),
      before.length > 0 &&
        el(
          "details",
          { class: "prompt-messages", open: true },
          el("summary", {}, `Prompt: ${format.count(before.length, "message")}`),
          el("ol", {}, before),
        ),
      el("ol", { class: "turns" }, items.slice(numPrompt)),
    );
  }

  page.episode = { block, contextsOf };
})((globalThis.verlLikeReport ??= {}));
