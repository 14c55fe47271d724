"use strict";
// The search over the texts of samples: one shard after the other, with time for the page between them.
(function (page) {
  const CONTEXT = 30; // characters before the hit in an excerpt
  const EXCERPT = 90;
  const BUSY_MS = 30; // after so long the page may draw and react

  /** Yield the texts of the messages of a context; null has none. */
  function* textsOf(messages) {
    for (const { content, reasoning, calls, name } of messages ?? []) {
      yield* [content, reasoning, name];
      for (const call of calls) yield* [call.name, call.arguments];
    }
  }

  /** Return whether the messages of a context have the words of a search. */
  function isFound(messages, query) {
    return Boolean(query) && [...textsOf(messages)].some((text) => text?.toLowerCase().includes(query.toLowerCase()));
  }

  /** Yield the texts of a sample. */
  function* texts(sample) {
    yield sample.prompt;
    yield sample.response;
    yield sample.ground_truth;
    yield sample.failure;
    for (const { messages } of [...sample.earlier, sample]) yield* textsOf(messages);
    yield* Object.values(sample.extra);
    for (const value of Object.values(sample.components)) if (typeof value === "string") yield value;
  }

  /** Return an excerpt around the first hit in a sample, or null. */
  function excerpt(sample, wanted) {
    for (const text of texts(sample)) {
      const at = text?.toLowerCase().indexOf(wanted) ?? -1;
      const start = Math.max(0, at - CONTEXT);
      if (at >= 0) return text.slice(start, start + EXCERPT);
    }
    return null;
  }

  class Search {
    /** ``onProgress()`` is called when there are new hits, and at the end. */
    constructor(onProgress) {
      this.onProgress = onProgress;
      this.clear();
    }

    clear() {
      this.stopped?.abort();
      this.stopped = null;
      this.key = null;
      this.hits = null; // entry -> excerpt
      this.progress = "";
    }

    /** Search samples of some steps, unless that was done or is being done. */
    start(index, steps, query) {
      const key = `${query} ${steps.map(({ shard }) => shard).join(" ")}`;
      if (key === this.key) return;
      this.clear();
      this.key = key;
      this.hits = new Map();
      this.stopped = new AbortController();
      this.progress = "searching";
      const { signal } = this.stopped;
      this.run(index, steps, query.toLowerCase(), signal).catch((error) => {
        if (signal.aborted) return;
        this.progress = error.message;
        this.onProgress();
      });
    }

    async run(index, steps, wanted, signal) {
      let last = performance.now();
      for (const [at, { kind, step, shard }] of steps.entries()) {
        const samples = await page.data.passing(shard);
        if (signal.aborted) return;
        samples.forEach((sample, row) => {
          const hit = excerpt(sample, wanted);
          if (hit !== null) this.hits.set(index.find(kind, step, row), hit);
        });
        if (performance.now() - last < BUSY_MS) continue;
        this.progress = `searched ${at + 1} of ${steps.length} steps`;
        this.onProgress();
        await new Promise((resolve) => setTimeout(resolve));
        last = performance.now();
        if (signal.aborted) return;
      }
      this.progress = "";
      this.onProgress();
    }
  }

  page.Search = Search;
  page.Search.isFound = isFound;
})((globalThis.verlLikeReport ??= {}));
