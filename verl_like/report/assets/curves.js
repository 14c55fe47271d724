"use strict";
// The view of curves: what the run came to, and panels in sections.
(function (page) {
  const { el, select, failure } = page.dom;
  const { charts, format, route } = page;
  const CLOSED = "Other"; // the section of metrics that no other section has
  const SMOOTHINGS = [
    ["", "none"],
    ["5", "5 steps"],
    ["20", "20 steps"],
    ["100", "100 steps"],
  ];

  /** Return the text of the panel's description: a line for each metric. */
  function description(panel, head) {
    return panel.metrics
      .filter((metric) => head.metrics[metric])
      .map((metric) => `${metric}: ${head.metrics[metric].sentence}`)
      .join("\n");
  }

  /** Make a panel of lines: title, legend, plot. It is drawn when it comes into view. */
  function linesPanel(panel, view) {
    let isLog = panel.scale === "log";
    const plot = el("div", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "chart" });
    const holder = el("div", { class: "legend-holder" });
    const value = (built, each, index) => format.quantity(charts.valueAt(built, each, index), panel.unit);
    const log = el(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-pressed": String(isLog),
        onclick: () => {
          isLog = !isLog;
          log.setAttribute("aria-pressed", String(isLog));
          render();
        },
      },
      "log",
    );
    let say = () => "";
    charts.keys(plot, (index) => say(index));

    function render() {
      charts.forget(plot);
      plot.replaceChildren();
      const built = page.series.build(panel, view.shown(), { shards: view.shards, smoothing: view.smoothing(), isLog });
      const { root: list, show } = charts.legend(built, { head: view.head, unit: panel.unit });
      holder.replaceChildren(list);
      const last = built.xs.length - 1;
      show(last);
      say = (index) =>
        built.series
          .map((each) =>
            [each.line.isOnly ? "" : each.line.label, each.metric, value(built, each, index)].join(" ").trim(),
          )
          .join(", ");
      plot.setAttribute(
        "aria-label",
        `${panel.title}. Last values: ${last < 0 ? "none" : say(last)}. Arrow keys move through steps, Enter chooses.`,
      );
      if (!built.series.length) plot.append(el("p", { class: "muted" }, "No values of the shown runs."));
      else
        charts.whenSeen(
          plot,
          charts.draw(plot, built, panel.unit, isLog, (chart) => show(chart.cursor.idx ?? last)),
        );
    }

    const title = el("h3", {}, panel.title, " ", el("span", { class: "unit" }, panel.unit === "-" ? "" : panel.unit));
    const about = el(
      "button",
      {
        type: "button",
        class: "quiet about",
        "aria-label": `About ${panel.title}`,
        "aria-description": description(panel, view.head),
        "data-tip": description(panel, view.head),
      },
      "?",
    );
    const root = el(
      "section",
      { class: "panel", "data-panel": panel.id, "data-metrics": panel.metrics.join("\n") },
      el("div", { class: "panel-head" }, title, log, about),
      plot,
      holder,
    );
    return { root, render, destroy: () => charts.forget(plot) };
  }

  /** Make the sections of panels. */
  function sections(view) {
    const names = [...new Set(view.head.panels.map(({ section }) => section))];
    const panels = [];
    const nodes = names.map((name) => {
      const own = view.head.panels
        .filter(({ section }) => section === name)
        .flatMap((panel) => (panel.kind === "stack" ? page.stages.panels(panel, view) : [linesPanel(panel, view)]));
      panels.push(...own);
      return el(
        "details",
        { class: "section", open: name !== CLOSED },
        el("summary", {}, el("h2", {}, name), el("span", { class: "muted" }, format.count(own.length, "panel"))),
        el(
          "div",
          { class: "panels" },
          own.map(({ root }) => root),
        ),
      );
    });
    return { nodes, panels };
  }

  /** Make the chips of the compared runs; each hides or shows its curves. */
  function chips(view) {
    if (view.lines.length < 2) return null;
    return el(
      "div",
      { class: "chips", role: "group", "aria-label": "Runs" },
      view.lines.map((line) => {
        const chip = el(
          "button",
          {
            type: "button",
            class: "chip",
            "aria-pressed": "true",
            onclick: () => {
              const isShown = !view.hidden.delete(line);
              if (isShown) view.hidden.add(line);
              chip.setAttribute("aria-pressed", String(!isShown));
              view.render();
            },
          },
          page.dom.swatch(line.hue, []),
          page.dom.visible(line.label),
        );
        return chip;
      }),
    );
  }

  /** Hide panels without the words, and open the sections that have one. */
  function filter(root, words) {
    const wanted = words.toLowerCase().split(/\s+/u).filter(Boolean);
    for (const section of root.querySelectorAll(".section")) {
      let num = 0;
      for (const panel of section.querySelectorAll(".panel")) {
        const text = `${panel.querySelector("h3").textContent} ${panel.dataset.metrics}`.toLowerCase();
        panel.hidden = !wanted.every((word) => text.includes(word));
        num += panel.hidden ? 0 : 1;
      }
      section.hidden = num === 0;
      if (wanted.length && num) section.open = true;
    }
  }

  function tools(view, root, params) {
    const hasGroups = view.head.groups.some(({ runs }) => runs.length > 1);
    const words = el("input", {
      type: "search",
      placeholder: "Filter panels",
      "aria-label": "Filter panels by words",
      oninput: () => filter(root, words.value),
    });
    const reset = el(
      "button",
      { type: "button", class: "reset", hidden: true, onclick: () => charts.state.onZoom(null) },
      "Show all steps",
    );
    const node = el(
      "div",
      { class: "tools" },
      words,
      select("Smoothing", SMOOTHINGS, params.get("smooth") ?? "", (value) => route.update({ smooth: value }, true)),
      hasGroups &&
        select(
          "Seeds",
          [
            ["", "mean and range"],
            ["each", "each run"],
          ],
          params.get("seeds") ?? "",
          (value) => route.update({ seeds: value }, true),
        ),
      reset,
      el("span", { class: "hint muted" }, "Drag to zoom, double-click for all steps, click to choose a step."),
    );
    return { node, reset };
  }

  function zoomOf(params) {
    const range = [params.get("from"), params.get("to")].map((text) => (text === null ? NaN : Number(text)));
    return range.every(Number.isFinite) && range[0] < range[1] ? range : null;
  }

  /** Return the first and the last step of any curve, so that panels below each other have one scale. */
  function range(shards) {
    const curves = [...shards].flatMap(({ series }) => Object.values(series)).filter(([steps]) => steps.length);
    if (!curves.length) return null;
    const ends = (pick) => curves.map(([steps]) => steps.at(pick));
    return [ends(0).reduce((low, step) => Math.min(low, step)), ends(-1).reduce((high, step) => Math.max(high, step))];
  }

  /** Bring the panel of a metric into view, once. */
  function showMetric(root, metric) {
    const panel = [...root.querySelectorAll(".panel")].find((node) =>
      node.dataset.metrics.split("\n").includes(metric),
    );
    if (!panel) return;
    panel.closest("details").open = true;
    panel.classList.add("target");
    requestAnimationFrame(() => panel.scrollIntoView({ block: "center" }));
  }

  async function fill(view, root, params) {
    const runs = view.head.runs.map((run, index) => [index, page.data.shard(run.curves)]);
    for (const [index, promise] of runs) view.shards.set(index, await promise);
    if (!root.isConnected) return;
    charts.state.all = range(view.shards.values());
    const { nodes, panels } = sections(view);
    view.panels = panels;
    root.append(...nodes);
    view.render();
    if ([...view.shards.values()].some(({ thinned }) => thinned))
      root.append(
        el("p", { class: "note" }, "Long curves are thinned to the lowest and highest value of each bucket of steps."),
      );
    if (params.get("metric")) showMetric(root, params.get("metric"));
  }

  function show(root, params) {
    const head = page.data.head();
    const isBand = params.get("seeds") !== "each";
    const view = {
      head,
      shards: new Map(),
      lines: page.series.lines(head, isBand),
      hidden: new Set(),
      panels: [],
      isBand,
    };
    let smooth = params.get("smooth") ?? "";
    view.shown = () => view.lines.filter((line) => !view.hidden.has(line));
    view.smoothing = () => Number(smooth) || 0;
    view.render = () => view.panels.forEach((panel) => panel.render());
    const { node, reset } = tools(view, root, params);
    root.append(page.summary.make(head), el("div", { class: "toolbar" }, chips(view), node));
    const follow = (next) => {
      const zoom = zoomOf(next);
      reset.hidden = zoom === null;
      charts.setZoom(zoom);
      page.step.follow(next);
    };
    charts.begin({
      onZoom: (range) => route.update({ from: range?.[0].toFixed(2), to: range?.[1].toFixed(2) }, true),
      onStep: (step) => route.update({ step }, true),
    });
    follow(params);
    const ready = fill(view, root, params).catch((error) => root.append(failure(error)));
    return {
      ready,
      update: (next) => {
        if ((next.get("seeds") !== "each") !== view.isBand) return false;
        if ((next.get("smooth") ?? "") !== smooth) {
          smooth = next.get("smooth") ?? "";
          view.render();
        }
        follow(next);
        if (next.get("metric") && next.get("metric") !== params.get("metric")) showMetric(root, next.get("metric"));
        params = next;
        return true;
      },
      destroy: () => view.panels.forEach((panel) => panel.destroy()),
    };
  }

  page.views ??= {};
  page.views.curves = { title: "Curves", isAvailable: () => true, show };
})((globalThis.verlLikeReport ??= {}));
