"use strict";
// The trend over the samples: mean and standard deviation of the scores of the filtered samples at each step.
(function (page) {
  const { el } = page.dom;
  const { charts, format, theme } = page;
  const HEIGHT = 92;

  /**
   * Return {xs, mean, low, high, least, most, num} of the scores of entries by step. ``low`` and ``high`` are a
   * standard deviation from the mean, within ``least`` and ``most``.
   */
  function byStep(index, entries) {
    const found = new Map();
    for (const entry of entries) {
      const step = index.step[entry];
      const score = index.score[entry];
      if (!found.has(step))
        found.set(step, { sum: 0, squares: 0, scored: 0, num: 0, least: Infinity, most: -Infinity });
      const each = found.get(step);
      each.num += 1;
      if (score === null) continue;
      each.sum += score;
      each.scored += 1;
      each.squares += score * score;
      each.least = Math.min(each.least, score);
      each.most = Math.max(each.most, score);
    }
    const xs = [...found.keys()].sort((left, right) => left - right);
    const column = (value) => xs.map((step) => (found.get(step).scored ? value(found.get(step)) : null));
    const mean = ({ sum, scored }) => sum / scored;
    const std = (each) => Math.sqrt(Math.max(0, each.squares / each.scored - mean(each) ** 2));
    return {
      xs,
      mean: column(mean),
      low: column((each) => Math.max(each.least, mean(each) - std(each))),
      high: column((each) => Math.min(each.most, mean(each) + std(each))),
      least: column(({ least }) => least),
      most: column(({ most }) => most),
      num: xs.map((step) => found.get(step).num),
    };
  }

  class Trend {
    constructor() {
      this.plot = el("div", { class: "plot trend-plot" });
      this.caption = el("p", { class: "trend-caption muted", "aria-hidden": "true" });
      this.root = el("div", { class: "trend", role: "img" }, this.caption, this.plot);
    }

    /** Draw the trend of entries; ``step`` is marked. */
    set(index, entries, step) {
      this.clear();
      const found = byStep(index, entries);
      const hasScores = found.mean.some((value) => value !== null);
      this.root.hidden = found.xs.length < 2 || !hasScores;
      if (this.root.hidden) return;
      const last = found.xs.length - 1;
      const ends = [0, last].map((at) => `${format.short(found.mean[at])} at step ${found.xs[at]}`);
      this.root.setAttribute("aria-label", `Mean score of the filtered samples: ${ends.join(", ")}.`);
      charts.state.step = step;
      this.say(found, Math.max(0, found.xs.indexOf(step ?? found.xs[last])));
      charts.whenSeen(this.plot, this.drawing(found));
    }

    say(found, at) {
      const [mean, least, most] = [found.mean, found.least, found.most].map((values) => format.short(values[at]));
      const num = format.count(found.num[at], "sample");
      const values = `step ${found.xs[at]}: ${mean} (from ${least} to ${most}), ${num}`;
      this.caption.textContent = `Score, mean and standard deviation \u00b7 ${values}`;
    }

    drawing(found) {
      const hidden = { stroke: "transparent", width: 0, points: { show: false } };
      const points = { show: found.xs.length <= page.series.SPARSE, size: 4 };
      return {
        height: HEIGHT,
        unit: "score",
        xs: found.xs,
        rows: [found.mean, found.low, found.high],
        series: [{}, { stroke: () => theme.color("c0"), width: 1.5, points }, hidden, hidden],
        bands: [{ series: [3, 2], fill: () => theme.wash("c0", 0.16) }],
        onCursor: ({ cursor }) => Number.isInteger(cursor.idx) && this.say(found, cursor.idx),
      };
    }

    clear() {
      charts.forget(this.plot);
      this.plot.replaceChildren();
    }
  }

  page.Trend = Trend;
})((globalThis.verlLikeReport ??= {}));
