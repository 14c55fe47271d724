"use strict";
// The ledger of stages: the seconds of each step as stacked areas, one panel for each run or group.
(function (page) {
  const { visible, swatch } = page.dom;
  const { charts, format, theme } = page;
  const NUM_HUES = 10;
  const TOTAL = "time/step_s";
  const GREYS = { __proto__: null, other: "s-rest", idle: "s-rest" };
  const hues = new Map(); // stage -> name of its colour, the same in all parts of the page

  /** Return the name of a stage's colour: grey for waiting and for the rest. */
  function hue(stage) {
    if (GREYS[stage]) return GREYS[stage];
    if (stage.startsWith("wait")) return "s-wait";
    if (!hues.has(stage)) hues.set(stage, `s${hues.size % NUM_HUES}`);
    return hues.get(stage);
  }

  function stageOf(metric) {
    return metric.replace(/^time\//u, "").replace(/_s$/u, "");
  }

  /** Return the mean of a metric over the runs of a line as a curve, or null. */
  function mean(metric, line, shards) {
    const curves = page.series.curvesOf(metric, line, shards);
    if (!curves.length) return null;
    return curves.length === 1 ? curves[0] : page.series.band(curves).mean;
  }

  function average(values) {
    const known = values.filter(Number.isFinite);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : 0;
  }

  /**
   * Return {xs, stages: [{name, values, mean}], totals, mean} of a line: the longest stage first, the rest last. The
   * means are over all steps, of which a long curve lacks some.
   */
  function ledger(panel, line, shards) {
    const meanOf = (metric) => average(line.runs.map((run) => shards.get(run).means[metric]));
    const named = panel.metrics
      .filter((metric) => metric !== TOTAL)
      .map((metric) => [metric, mean(metric, line, shards)])
      .filter(([, curve]) => curve);
    if (!named.length) return null;
    const whole = mean(TOTAL, line, shards);
    const xs = page.series.union([...named.map(([, curve]) => curve), ...(whole ? [whole] : [])]);
    const stages = named.map(([metric, curve]) => {
      const values = page.series.interpolated(curve, xs).map((value) => value ?? 0);
      return { name: stageOf(metric), values, mean: meanOf(metric) };
    });
    stages.sort((left, right) => right.mean - left.mean);
    const sums = Array.from(xs, (_, index) => stages.reduce((sum, { values }) => sum + values[index], 0));
    const totals = whole
      ? page.series.interpolated(whole, xs).map((value, index) => Math.max(value ?? 0, sums[index]))
      : sums;
    const sum = stages.reduce((total, stage) => total + stage.mean, 0);
    const all = whole ? Math.max(meanOf(TOTAL), sum) : sum;
    if (all - sum > 1e-3 * all)
      stages.push({ name: "other", values: totals.map((total, index) => total - sums[index]), mean: all - sum });
    return { xs, stages, totals, mean: all };
  }

  /** Return the rows of uPlot: sums of the stages up to each one, in seconds or in percent of the step. */
  function stacked({ stages, totals }, isShare) {
    const sum = new Array(totals.length).fill(0);
    return stages.map(({ values }) =>
      values.map((value, index) => {
        sum[index] += isShare ? (totals[index] ? (100 * value) / totals[index] : 0) : value;
        return sum[index];
      }),
    );
  }

  function drawing(found, isShare) {
    const fills = found.stages.map(
      ({ name }) =>
        () =>
          theme.color(hue(name)),
    );
    const edge = () => theme.color("paper");
    const series = fills.map((fill, index) => ({
      stroke: edge,
      width: 0.75,
      points: { show: false },
      fill: index === 0 ? fill : undefined,
    }));
    return {
      xs: found.xs,
      rows: stacked(found, isShare),
      series: [{}, ...series],
      bands: fills.slice(1).map((fill, index) => ({ series: [index + 2, index + 1], fill })),
      unit: isShare ? "%" : "seconds",
      range: (_, low, high) => [0, isShare ? 100 : high * 1.04 || 1],
      points: { show: false },
    };
  }

  /** Make the panel of a line: the top area is the first of the legend. One step has no area, only values. */
  function stackPanel(panel, line, view) {
    const contents = (isShare) => {
      const found = view.shown().includes(line) ? ledger(panel, line, view.shards) : null;
      if (!found) return null;
      const share = (values, index) => (found.totals[index] ? (100 * values[index]) / found.totals[index] : 0);
      const items = found.stages.map(({ name, values }) => ({
        mark: swatch(hue(name)),
        name,
        text: (index) => `${format.seconds(values[index])} \u00b7 ${share(values, index).toFixed(0)} %`,
      }));
      const last = found.xs.length - 1;
      return { items: items.reverse(), last, drawing: last > 0 ? drawing(found, isShare) : null };
    };
    return charts.panel(panel, {
      title: line.isOnly ? panel.title : `${panel.title}: ${visible(line.label)}`,
      unit: "seconds per step",
      button: "share",
      isPressed: false,
      isWide: true,
      contents,
    });
  }

  /** Make a panel for each line that has the stages. */
  function panels(panel, view) {
    return view.lines
      .filter((line) => panel.metrics.some((metric) => page.series.curvesOf(metric, line, view.shards).length))
      .map((line) => stackPanel(panel, line, view));
  }

  // The colours are given in the sequence of the panel's metrics, whatever view is opened first.
  for (const panel of page.data.head().panels)
    if (panel.kind === "stack")
      panel.metrics
        .filter((metric) => metric !== TOTAL)
        .map(stageOf)
        .forEach(hue);
  page.stages = { hue, ledger, panels };
})((globalThis.verlLikeReport ??= {}));
