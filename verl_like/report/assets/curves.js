"use strict";
// The view of curves: what the run came to, and panels in sections.
(function (page) {
  const { el, visible, button, toggle, select, swatch, failure } = page.dom;
  const { charts, format, route, theme } = page;
  const CLOSED = "Other"; // the section of metrics that no other section has
  const SMOOTHINGS = [
    ["", "none"],
    ["5", "5 steps"],
    ["20", "20 steps"],
    ["100", "100 steps"],
  ];

  const SEEDS = [
    ["", "mean and range"],
    ["each", "each run"],
  ];
  const opened = new Map(); // section -> whether it is open; a view that is made again keeps this

  /** Return the text of the panel's description: a line for each metric. */
  function description(panel, head) {
    return panel.metrics
      .filter((metric) => head.metrics[metric])
      .map((metric) => `${metric}: ${head.metrics[metric].sentence}`)
      .join("\n");
  }

  /** Return the drawing of what ``series.build`` found: lines, and bands from the lowest to the highest run. */
  function drawing({ xs, rows, series: found }, { unit, isLog }) {
    const hidden = { stroke: "transparent", width: 0, points: { show: false } };
    const series = [{}];
    for (const { row, rawRow, band, hue, dash, isSparse } of found) {
      const stroke = () => theme.color(hue);
      series[row] = { stroke, width: 1.5, dash, points: { show: isSparse, size: 4, width: 1, fill: stroke } };
      for (const each of band ?? []) series[each] = hidden;
      if (rawRow) series[rawRow] = { stroke: () => theme.wash(hue, 0.3), width: 1, points: { show: false } };
    }
    const bands = found
      .filter(({ band }) => band)
      .map(({ band, hue }) => ({ series: band, fill: () => theme.wash(hue, 0.16) }));
    return { xs, rows, series, bands, unit, isLog };
  }

  /** Make a panel of lines. */
  function linesPanel(panel, view) {
    const about = description(panel, view.head);
    const contents = (isLog) => {
      const built = page.series.build(panel, view.shown(), { shards: view.shards, smoothing: view.smoothing(), isLog });
      if (!built.series.length) return null;
      const isOneMetric = new Set(built.series.map(({ metric }) => metric)).size === 1;
      const items = built.series.map(({ metric, line, hue, dash, row }) => ({
        mark: swatch(hue, dash),
        name: line.isOnly ? metric : isOneMetric ? line.label : `${line.label}: ${metric}`,
        tip: view.head.metrics[metric]?.sentence,
        text: (index) =>
          format.quantity(page.series.nearest(built.rows[row - 1], index), panel.unit === "bytes" ? "bytes" : ""),
      }));
      return { items, last: built.xs.length - 1, drawing: drawing(built, { unit: panel.unit, isLog }) };
    };
    return charts.panel(panel, {
      title: panel.title,
      unit: panel.unit,
      button: "log",
      isPressed: panel.scale === "log",
      isWide: false,
      others:
        about &&
        button("?", null, {
          class: "quiet about",
          "aria-label": `About ${panel.title}`,
          "aria-description": about,
          "data-tip": about,
        }),
      contents,
    });
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
        {
          class: "section",
          open: opened.get(name) ?? name !== CLOSED,
          ontoggle: ({ target }) => opened.set(name, target.open),
        },
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
    const press = (at, isShown) => {
      if (isShown) view.hidden.delete(at);
      else view.hidden.add(at);
      route.update({ hide: [...view.hidden].join(",") }, true);
      view.render();
    };
    return el(
      "div",
      { class: "chips", role: "group", "aria-label": "Runs" },
      view.lines.map(({ hue, label }, at) =>
        toggle([swatch(hue, []), visible(label)], !view.hidden.has(at), (isShown) => press(at, isShown), {
          class: "chip",
        }),
      ),
    );
  }

  /** Hide panels without the words, and open the sections that have one. */
  function filter(root, passes, hasWords) {
    for (const section of root.querySelectorAll(".section")) {
      const panels = [...section.querySelectorAll(".panel")];
      for (const panel of panels)
        panel.hidden = !passes(`${panel.querySelector("h3").textContent} ${panel.dataset.metrics}`);
      section.hidden = panels.every(({ hidden }) => hidden);
      if (hasWords && !section.hidden) section.open = true;
    }
  }

  function tools(view, root, params) {
    const words = page.dom.words("panels", params, (passes, hasWords) => filter(root, passes, hasWords));
    const reset = button("Show all steps", () => charts.state.onZoom(null), { class: null, hidden: true });
    const node = el(
      "div",
      { class: "tools" },
      words.node,
      select("Smoothing", SMOOTHINGS, params.get("smooth") ?? "", (value) => route.update({ smooth: value }, true)),
      view.head.groups.length > 0 &&
        select("Seeds", SEEDS, params.get("seeds") ?? "", (value) => route.update({ seeds: value, hide: "" }, true)),
      reset,
      el("span", { class: "hint muted" }, "Drag to zoom, double-click for all steps, click to choose a step."),
    );
    return { node, reset, words };
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

  /** Bring the panel of the address's metric into view, once. */
  function showMetric(root, params) {
    const metric = params.get("metric");
    const panels = [...root.querySelectorAll(".panel")];
    const panel = panels.find(({ dataset }) => dataset.metrics.split("\n").includes(metric));
    if (!panel) return;
    for (const each of panels) each.classList.toggle("target", each === panel);
    panel.closest("details").open = true;
    requestAnimationFrame(() => panel.scrollIntoView({ block: "center" }));
    route.update({ metric: "" }, true);
  }

  async function fill(view, root, words) {
    const runs = view.head.runs.map((run, index) => [index, page.data.shard(run.curves)]);
    for (const [index, promise] of runs) view.shards.set(index, await promise);
    if (!root.isConnected) return;
    charts.state.all = range(view.shards.values());
    const { nodes, panels } = sections(view);
    view.panels = panels;
    root.append(...nodes);
    view.render();
    words.fill();
    showMetric(root, route.current().params);
  }

  function show(root, params) {
    const head = page.data.head();
    root.append(page.summary.make(head));
    if (!head.panels.length) {
      const runs = head.runs.length === 1 ? "This run has" : "These runs have";
      root.append(el("p", { class: "muted" }, `${runs} logged no metrics yet.`));
      return { update: () => true, destroy: () => {} };
    }
    const seeds = params.get("seeds");
    const hidden = new Set((params.get("hide") ?? "").split(",").filter(Boolean).map(Number));
    const view = { head, hidden, shards: new Map(), lines: page.series.lines(head, seeds !== "each"), panels: [] };
    let smooth = params.get("smooth");
    view.shown = () => view.lines.filter((_, at) => !hidden.has(at));
    view.smoothing = () => Number(smooth);
    view.render = () => view.panels.forEach((panel) => panel.render());
    const { node, reset, words } = tools(view, root, params);
    root.append(el("div", { class: "toolbar" }, chips(view), node));
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
    const ready = fill(view, root, words).catch((error) => root.append(failure(error)));
    return {
      ready,
      update: (next) => {
        if (next.get("seeds") !== seeds || (next.get("hide") ?? "") !== [...hidden].join(",")) return false;
        if (next.get("smooth") !== smooth) {
          smooth = next.get("smooth");
          view.render();
        }
        if (document.activeElement !== words.node) {
          words.node.value = next.get("q") ?? "";
          words.fill();
        }
        follow(next);
        showMetric(root, next);
        return true;
      },
      destroy: () => view.panels.forEach((panel) => panel.destroy()),
    };
  }

  page.views ??= {};
  page.views.curves = { title: "Curves", isAvailable: () => true, show };
})((globalThis.verlLikeReport ??= {}));
