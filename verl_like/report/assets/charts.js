"use strict";
// Panels of curves, drawn by uPlot when they come into view. All share cursor, zoom and the chosen step.
(function (page) {
  const { el, announce, visible, hasModifier, toggle } = page.dom;
  const { format, theme } = page;
  const HEIGHT = 172;
  const CLICK_PX = 4; // a pointer that moves further drags
  const MAX_LEGEND = 12; // items of a panel that is not wide
  const DIGIT_PX = 6.8; // width of a digit of an axis
  const POINTS = { size: 6, width: 1.5, fill: () => theme.color("paper") }; // of curves at the cursor
  const charts = new Set(); // drawn ones
  const pressed = new Map(); // panel -> whether its button is pressed; a view that is made again keeps this
  let isPainted = false;
  // Shared by all charts: the zoomed range, the range of all steps, the chosen step, and what is called on a change.
  const state = { zoom: null, all: null, step: null, onZoom: null, onStep: null };

  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        watcher.unobserve(target);
        target.drawWhenSeen();
      }
    },
    { rootMargin: "300px 0px" },
  );
  const resizes = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const width = Math.floor(contentRect.width);
      if (target.chart && width > 0 && width !== target.chart.width)
        target.chart.setSize({ width, height: target.chart.height });
    }
  });

  /** Draw into a node once it is near the window: uPlot's series and bands, steps and rows, and some options. */
  function whenSeen(node, { xs, rows, series, bands, ...others }) {
    node.drawWhenSeen = () => {
      const width = Math.max(120, Math.floor(node.clientWidth));
      const chart = new uPlot({ ...options(width, others), series, bands }, [xs, ...rows], node);
      clicks(chart);
      node.chart = chart;
      charts.add(chart);
      followZoom(chart); // before its first drawing, which is a microtask
      resizes.observe(node);
      firstPaint();
    };
    watcher.observe(node);
  }

  /** Mark the time at which the first chart is on the screen, for those who measure it. */
  function firstPaint() {
    if (isPainted) return;
    isPainted = true;
    requestAnimationFrame(() => setTimeout(() => performance.mark("first-chart")));
  }

  function forget(node) {
    watcher.unobserve(node);
    resizes.unobserve(node);
    if (node.chart) {
      charts.delete(node.chart);
      node.chart.destroy();
      node.chart = null;
    }
  }

  function axes(unit, isLog) {
    const shared = {
      stroke: () => theme.color("muted"),
      font: theme.FONT,
      grid: { stroke: () => theme.color("line"), width: 1 },
    };
    const ticks = { stroke: () => theme.color("line"), width: 1, size: 4 };
    return [
      {
        ...shared,
        ticks,
        size: 26,
        gap: 3,
        space: 60,
        grid: { show: false },
        values: (_, splits) => format.ticks(splits, "steps"),
      },
      {
        ...shared,
        grid: { ...shared.grid, filter: (_, splits) => (isLog ? splits.map(powerOfTen) : splits) },
        ticks: { show: false },
        size: axisWidth,
        gap: 6,
        space: 30,
        values: (_, splits) => (isLog ? format.powers(splits, unit) : format.ticks(splits, unit)),
      },
    ];
  }

  /** Return a power of ten, and null for other numbers: a logarithmic axis has lines at the powers alone. */
  function powerOfTen(value) {
    return value !== null && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9 ? value : null;
  }

  /** Return the width of the axis of values in CSS pixels: that of its longest text, or of most panels. */
  function axisWidth(_, texts) {
    return Math.max(50, 14 + DIGIT_PX * Math.max(0, ...(texts ?? []).map((text) => text?.length ?? 0)));
  }

  /** Return the range of the axis of values; a curve that is constant is in its middle, one of zeros at the bottom. */
  function spread(_, low, high) {
    if (low === null || (low === 0 && high === 0)) return [0, 1];
    if (low === high) return [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
    return uPlot.rangeNum(low, high, 0.1, true);
  }

  /** Return uPlot's options that all panels share. */
  function options(width, { height = HEIGHT, unit, isLog = false, range = spread, points = POINTS, onCursor }) {
    return {
      width,
      height,
      padding: [8, 22, 0, 0],
      legend: { show: false },
      axes: axes(unit, isLog),
      scales: {
        x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
        y: isLog ? { distr: 3 } : { range },
      },
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        sync: {
          key: "step",
          scales: ["x", null],
          filters: { pub: (type) => type !== "mousedown" && type !== "mouseup" && type !== "dblclick" },
        },
        bind: { dblclick: () => () => state.onZoom(null) },
        points,
      },
      hooks: { setCursor: [onCursor], setSelect: [zoomIn], draw: [drawStep] },
    };
  }

  function zoomIn(chart) {
    const { left, width } = chart.select;
    if (width < CLICK_PX) return;
    const range = [chart.posToVal(left, "x"), chart.posToVal(left + width, "x")];
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    state.onZoom(range);
  }

  function followZoom(chart) {
    const xs = chart.data[0];
    if (!xs.length) return;
    const [min, max] = state.zoom ?? state.all ?? [xs[0], xs[xs.length - 1]];
    chart.setScale("x", { min, max });
  }

  /** Draw a line at the chosen step. */
  function drawStep(chart) {
    if (state.step === null) return;
    const x = Math.round(chart.valToPos(state.step, "x", true));
    const { left, top, width, height } = chart.bbox;
    if (x < left || x > left + width) return;
    chart.ctx.save();
    chart.ctx.fillStyle = theme.color("accent");
    chart.ctx.fillRect(x, top, devicePixelRatio, height);
    chart.ctx.restore();
  }

  /** Begin a view: its charts share neither zoom nor step with those of the last one. */
  function begin({ onZoom = setZoom, onStep }) {
    Object.assign(state, { zoom: null, all: null, step: null, onZoom, onStep });
  }

  /** Set the range of steps that all charts show, or null for all steps. */
  function setZoom(range) {
    state.zoom = range;
    charts.forEach(followZoom);
  }

  /** Set the chosen step, or null. */
  function setStep(step) {
    state.step = step;
    charts.forEach((chart) => chart.redraw(false));
  }

  /** Let a plot be used by keyboard: arrows move the cursor, Enter chooses the step, Escape shows all steps. */
  function keys(node, say) {
    node.addEventListener("keydown", (event) => {
      const chart = node.chart;
      if (!chart || hasModifier(event)) return;
      const xs = chart.data[0];
      const { min, max } = chart.scales.x;
      const inside = [...xs.keys()].filter((index) => xs[index] >= min && xs[index] <= max);
      const [first, last] = [inside.at(0), inside.at(-1)];
      const at = chart.cursor.idx ?? last;
      const reach = event.shiftKey ? 10 : 1;
      const next = { ArrowLeft: at - reach, ArrowRight: at + reach, Home: first, End: last }[event.key];
      if (event.key === "Enter") state.onStep(xs[at]);
      else if (event.key === "Escape") state.onZoom(null);
      else if (next === undefined || !inside.length) return;
      else {
        const index = Math.min(last, Math.max(first, next));
        chart.setCursor({ left: chart.valToPos(xs[index], "x"), top: chart.over.clientHeight / 2 }, true, true);
        announce(`Step ${xs[index]}: ${say(index)}`);
      }
      event.preventDefault();
    });
  }

  /** Choose the step under a click, as opposed to a drag. */
  function clicks(chart) {
    let start = 0;
    chart.over.addEventListener("mousedown", (event) => {
      start = event.clientX;
    });
    chart.over.addEventListener("click", (event) => {
      if (event.detail === 1 && Math.abs(event.clientX - start) < CLICK_PX && chart.cursor.idx !== null) {
        state.onStep(chart.data[0][chart.cursor.idx]);
      }
    });
  }

  /** Make a legend of items {mark, name, tip, text}: ``show(index)`` writes the ``text(index)`` of each. */
  function legend(items, max = Infinity) {
    const shown = items.slice(0, max).map(({ mark, name, tip, text }) => {
      const value = el("span", { class: "value" });
      const root = el("li", {}, mark, el("span", { class: "name", "data-tip": tip || null }, visible(name)), value);
      return { root, write: (index) => (value.textContent = text(index)) };
    });
    const rest = items.length - shown.length;
    return {
      root: el(
        "ul",
        { class: "legend" },
        shown.map(({ root }) => root),
        rest > 0 && el("li", { class: "muted" }, `and ${rest} more`),
      ),
      show: (index) => shown.forEach(({ write }) => write(index)),
    };
  }

  /**
   * Make a panel with a button. ``contents(isPressed)`` returns what it shows at present, or null without values: the
   * items of its legend, the last index of its steps, and the drawing, which is null if there is nothing to draw.
   */
  function panel({ id, metrics }, { title, unit, button, isPressed, isWide, others, contents }) {
    const key = `${id} ${title}`;
    const plot = el("div", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "chart" });
    const holder = el("div", { class: "legend-holder" });
    let say = null;
    keys(plot, (index) => say(index));

    function render() {
      forget(plot);
      const found = contents(pressed.get(key) ?? isPressed);
      plot.replaceChildren(found ? "" : el("p", { class: "muted" }, "No values of the shown runs."));
      holder.replaceChildren();
      plot.hidden = found !== null && !found.drawing;
      if (!found) return;
      const { items, last, drawing } = found;
      const { root, show } = legend(items, isWide ? Infinity : MAX_LEGEND);
      holder.append(root);
      show(last);
      say = (index) => items.map(({ name, text }) => `${name} ${text(index)}`).join(", ");
      const hint = "Arrow keys move through the steps, Enter chooses one.";
      plot.setAttribute("aria-label", `${title}${unit && ` in ${unit}`}. Last values: ${say(last)}. ${hint}`);
      if (drawing) whenSeen(plot, { ...drawing, onCursor: (chart) => show(chart.cursor.idx ?? last) });
    }

    const press = (isOn) => {
      pressed.set(key, isOn);
      render();
    };
    const head = el("h3", {}, title, " ", el("span", { class: "unit" }, unit));
    const root = el(
      "section",
      { class: isWide ? "panel wide" : "panel", "data-panel": id, "data-metrics": metrics.join("\n") },
      el("div", { class: "panel-head" }, head, toggle(button, pressed.get(key) ?? isPressed, press), others),
      plot,
      holder,
    );
    return { root, render, destroy: () => forget(plot) };
  }

  theme.onChange(() => charts.forEach((chart) => chart.redraw()));
  page.charts = { state, begin, setZoom, setStep, whenSeen, forget, legend, panel };
})((globalThis.verlLikeReport ??= {}));
