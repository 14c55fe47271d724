"use strict";
// The index of a run's samples: a column for each number that filters, lists and trends need, an entry for each sample.
(function (page) {
  const KINDS = ["train", "val"];

  class Index {
    constructor(columns, samples) {
      this.columns = columns;
      this.samples = samples;
      this.entries = columns.step.map((_, entry) => entry);
      this.byPosition = new Map(
        this.entries.map((entry) => [this.key(this.kind(entry), columns.step[entry], columns.row[entry]), entry]),
      );
      const scores = columns.score.filter((score) => score !== null);
      this.lowest = scores.reduce((low, score) => Math.min(low, score), Infinity);
      this.highest = scores.reduce((high, score) => Math.max(high, score), -Infinity);
      this.usualFinish = mostFrequent(columns.finish);
    }

    key(kind, step, row) {
      return `${kind} ${step} ${row}`;
    }

    kind(entry) {
      return KINDS[this.columns.kind[entry]];
    }

    /** Return the entry of a sample, or undefined. */
    find(kind, step, row) {
      return this.byPosition.get(this.key(kind, step, row));
    }

    /** Return {kind, step, shard} of the step of a sample. */
    stepOf(entry) {
      return this.samples.steps.find(
        ({ kind, step }) => kind === this.kind(entry) && step === this.columns.step[entry],
      );
    }

    /** Return the entries of the same step. */
    ofStep(entry) {
      const { kind, step } = this.columns;
      return this.entries.filter((other) => step[other] === step[entry] && kind[other] === kind[entry]);
    }

    /** Return the entries that answer the same prompt in the same step, the entry itself among them. */
    groupOf(entry) {
      const { group } = this.columns;
      return this.ofStep(entry).filter((other) => group[other] === group[entry]);
    }

    /** Return the ends of scales that are wider than one sample: the advantages of its step. */
    reach(entry) {
      const { advantage } = this.columns;
      return { advantage: Math.max(...this.ofStep(entry).map((other) => Math.abs(advantage[other] ?? 0))) };
    }

    /** Return how far a score is between the lowest and the highest, in percent. */
    share(score) {
      return score === null || this.highest <= this.lowest
        ? 0
        : (100 * (score - this.lowest)) / (this.highest - this.lowest);
    }

    /** Return how a sample ended, unless it did so as most of them do. */
    unusualFinish(entry) {
      const { finish, finishes } = this.columns;
      return finish[entry] === this.usualFinish ? "" : finishes[finish[entry]];
    }
  }

  function mostFrequent(values) {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
    return [...counts].sort((left, right) => right[1] - left[1])[0][0];
  }

  page.Index = Index;
  page.Index.KINDS = KINDS;
})((globalThis.verlLikeReport ??= {}));
