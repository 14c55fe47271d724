"use strict";
// The lines of a panel: one for each metric of each run, or of each group of runs that differ only in their seed.
(function (page) {
  const NUM_COLOURS = 8;
  const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
  const SPARSE = 40; // a curve of at most so many points is drawn with its points

  /** Return the entities that are compared: {label, runs, hue}, a group of several runs as one if ``bands``. */
  function lines(head, bands) {
    const taken = new Set();
    const found = [];
    for (const [index, run] of head.runs.entries()) {
      if (taken.has(index)) continue;
      const group = bands ? head.groups.find(({ runs }) => runs.includes(index)) : undefined;
      const runs = group?.runs ?? [index];
      runs.forEach((member) => taken.add(member));
      found.push({ label: group ? `${group.name} (${runs.length} seeds)` : run.name, runs });
    }
    const isOnly = found.length === 1;
    return found.map((line, index) => ({ ...line, isOnly, hue: `c${index % NUM_COLOURS}` }));
  }

  function union(curves) {
    const steps = new Set();
    for (const [at] of curves) for (const step of at) steps.add(step);
    return Float64Array.from(steps).sort();
  }

  /** Return the values of a curve at ``xs``; undefined where it has no point: a line passes over that, unlike null. */
  function aligned([steps, values], xs) {
    const found = new Array(xs.length);
    let at = 0;
    for (let index = 0; index < xs.length && at < steps.length; index += 1) {
      if (xs[index] === steps[at]) {
        found[index] = values[at];
        at += 1;
      }
    }
    return found;
  }

  /** Return the values of a curve at ``xs``, between its points by linear interpolation, outside of them null. */
  function interpolated([steps, values], xs) {
    let at = 0;
    return Array.from(xs, (x) => {
      while (at < steps.length - 1 && steps[at + 1] <= x) at += 1;
      if (steps[at] === x) return values[at];
      const [left, right] = [values[at], values[at + 1]];
      if (steps[at] > x || at === steps.length - 1 || left === null || right === null) return null;
      return left + ((right - left) * (x - steps[at])) / (steps[at + 1] - steps[at]);
    });
  }

  /** Return curves of the mean, lowest and highest value over runs, where at least one has a value. */
  function band(curves) {
    const xs = union(curves);
    const all = curves.map((curve) => interpolated(curve, xs));
    const mean = [],
      low = [],
      high = [];
    for (let index = 0; index < xs.length; index += 1) {
      const values = all.map((curve) => curve[index]).filter((value) => value !== null);
      mean.push(values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
      low.push(values.length ? Math.min(...values) : null);
      high.push(values.length ? Math.max(...values) : null);
    }
    return { mean: [xs, mean], low: [xs, low], high: [xs, high] };
  }

  /** Return a curve's means over ``width`` steps around each of its points; a mean from both sides does not lag. */
  function smoothed([steps, values], width) {
    let [first, next, sum, num] = [0, 0, 0, 0];
    const means = Array.from(values, (value, index) => {
      for (; next < steps.length && steps[next] <= steps[index] + width / 2; next += 1) {
        if (values[next] === null) continue;
        sum += values[next];
        num += 1;
      }
      for (; steps[first] < steps[index] - width / 2; first += 1) {
        if (values[first] === null) continue;
        sum -= values[first];
        num -= 1;
      }
      return value === null ? null : sum / num;
    });
    return [steps, means];
  }

  /** Return the curves of a metric for the runs of a line that have it. */
  function curvesOf(metric, line, shards) {
    return line.runs.map((run) => shards.get(run).series[metric]).filter((curve) => curve && curve[0].length);
  }

  /** Return the series of a panel: {metric, line, curve, low, high, raw, hue, dash, isSparse}. */
  function seriesOf(panel, shown, { shards, smoothing }) {
    const found = [];
    for (const [index, metric] of panel.metrics.entries()) {
      for (const line of shown) {
        const curves = curvesOf(metric, line, shards);
        if (!curves.length) continue;
        const { mean, low, high } = curves.length > 1 ? band(curves) : { mean: curves[0] };
        found.push({
          metric,
          line,
          low,
          high,
          curve: smoothing ? smoothed(mean, smoothing) : mean,
          raw: smoothing && !low ? mean : undefined,
          hue: line.isOnly ? `c${index % NUM_COLOURS}` : line.hue,
          dash: DASHES[(line.isOnly ? Math.floor(index / NUM_COLOURS) : index) % DASHES.length],
          isSparse: mean[0].length <= SPARSE,
        });
      }
    }
    return found;
  }

  /** Return {xs, rows, series} of a panel: for uPlot, the steps and one aligned row for each drawn curve. */
  function build(panel, shown, options) {
    const series = seriesOf(panel, shown, options);
    const xs = union(series.flatMap(({ curve, low }) => (low ? [curve, low] : [curve])));
    const rows = [];
    const add = (curve) => {
      const row = aligned(curve, xs);
      rows.push(options.isLog ? row.map((value) => (value > 0 || value === undefined ? value : null)) : row);
      return rows.length; // row 0 of uPlot is the steps
    };
    for (const each of series) {
      each.row = add(each.curve);
      if (each.low) each.band = [add(each.high), add(each.low)];
      if (each.raw) each.rawRow = add(each.raw);
    }
    return { xs, rows, series };
  }

  /** Return the number of a row that is nearest to an index, or null. */
  function nearest(row, index) {
    for (let distance = 0; distance <= row.length; distance += 1)
      for (const value of [row[index - distance], row[index + distance]]) if (Number.isFinite(value)) return value;
    return null;
  }

  page.series = { SPARSE, lines, curvesOf, build, band, union, interpolated, nearest };
})((globalThis.verlLikeReport ??= {}));
