"use strict";
// The ledger of stages: the seconds of each step as stacked areas, one panel for each run or group.
(function (page) {
  const { el, visible, swatch } = page.dom;
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

  /** Return {xs, stages: [{name, values, mean}], total} of a line: the longest stage first, the unnamed rest last. */
  function ledger(panel, line, shards) {
    const named = panel.metrics
      .filter((metric) => metric !== TOTAL)
      .map((metric) => [stageOf(metric), mean(metric, line, shards)])
      .filter(([, curve]) => curve);
    if (!named.length) return null;
    const whole = mean(TOTAL, line, shards);
    const xs = page.series.union([...named.map(([, curve]) => curve), ...(whole ? [whole] : [])]);
    const stages = named.map(([name, curve]) => {
      const values = page.series.interpolated(curve, xs).map((value) => value ?? 0);
      return { name, values, mean: average(values) };
    });
    stages.sort((left, right) => right.mean - left.mean);
    const sums = Array.from(xs, (_, index) => stages.reduce((sum, { values }) => sum + values[index], 0));
    const totals = whole
      ? page.series.interpolated(whole, xs).map((value, index) => Math.max(value ?? 0, sums[index]))
      : sums;
    const rest = totals.map((total, index) => total - sums[index]);
    if (average(rest) > 1e-3 * average(totals)) stages.push({ name: "other", values: rest, mean: average(rest) });
    return { xs, stages, totals, mean: average(totals) };
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

  function draw(node, found, isShare, onCursor) {
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
    const bands = fills.slice(1).map((fill, index) => ({ series: [index + 2, index + 1], fill }));
    const range = (_, low, high) => [0, isShare ? 100 : high * 1.04 || 1];
    return (width) => {
      const options = charts.options(width, { unit: isShare ? "%" : "seconds", isLog: false, onCursor, range });
      options.cursor.points = { show: false };
      const chart = new uPlot(
        { ...options, series: [{}, ...series], bands },
        [found.xs, ...stacked(found, isShare)],
        node,
      );
      charts.clicks(chart);
      return chart;
    };
  }

  /** Make the legend, the top area first; ``show`` writes the seconds and shares of a step. */
  function legend(found) {
    const items = found.stages
      .map(({ name, values }) => {
        const value = el("span", { class: "value" });
        return {
          value,
          values,
          root: el("li", {}, swatch(hue(name)), el("span", { class: "name" }, visible(name)), value),
        };
      })
      .reverse();
    const show = (index) => {
      for (const { value, values } of items) {
        const share = found.totals[index] ? (100 * values[index]) / found.totals[index] : 0;
        value.textContent = `${format.seconds(values[index])} \u00b7 ${share.toFixed(0)} %`;
      }
    };
    return {
      root: el(
        "ul",
        { class: "legend" },
        items.map(({ root }) => root),
      ),
      show,
    };
  }

  /** Make the panel of a line. */
  function stackPanel(panel, line, view) {
    let isShare = false;
    const plot = el("div", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "chart" });
    const holder = el("div", { class: "legend-holder" });
    const share = el(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-pressed": "false",
        onclick: () => {
          isShare = !isShare;
          share.setAttribute("aria-pressed", String(isShare));
          render();
        },
      },
      "share",
    );
    const title = el(
      "h3",
      {},
      line.isOnly ? panel.title : `${panel.title}: ${visible(line.label)}`,
      " ",
      el("span", { class: "unit" }, "seconds per step"),
    );
    const root = el(
      "section",
      { class: "panel wide", "data-panel": panel.id, "data-metrics": panel.metrics.join("\n") },
      el("div", { class: "panel-head" }, title, share),
      plot,
      holder,
    );
    let say = () => "";
    charts.keys(plot, (index) => say(index));

    function render() {
      charts.forget(plot);
      plot.replaceChildren();
      const found = ledger(panel, line, view.shards);
      root.hidden = !found || !view.shown().includes(line);
      if (root.hidden) return;
      const { root: list, show } = legend(found);
      holder.replaceChildren(list);
      const last = found.xs.length - 1;
      show(last);
      say = (index) => found.stages.map(({ name, values }) => `${name} ${format.seconds(values[index])}`).join(", ");
      plot.setAttribute("aria-label", `${panel.title}. Last step: ${say(last)}. Arrow keys move through the steps.`);
      charts.whenSeen(
        plot,
        draw(plot, found, isShare, (chart) => show(chart.cursor.idx ?? last)),
      );
    }

    return { root, render, destroy: () => charts.forget(plot) };
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
