"use strict";
// The view of time: stages, a step of each process, seconds of the processes, memory, stalls.
(function (page) {
  const { el, visible, failure, swatch, table } = page.dom;
  const { format, route } = page;

  function section(title, note, ...children) {
    return el("section", { class: "block" }, el("h2", {}, title), note && el("p", { class: "note" }, note), children);
  }

  function bar(percent, kind = "") {
    const node = el("span", { class: `bar ${kind}` });
    node.style.width = `${percent}%`;
    return node;
  }

  /** Make a table of the mean seconds of each stage. */
  function stageTable(found) {
    const longest = Math.max(...found.stages.map(({ mean }) => mean));
    const rows = found.stages.map(({ name, mean }) => {
      const length = bar((100 * mean) / longest);
      length.style.background = `var(--${page.stages.hue(name)})`;
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, swatch(page.stages.hue(name)), visible(name)),
        el("td", { class: "number" }, mean.toFixed(3)),
        el("td", { class: "number" }, `${((100 * mean) / found.mean).toFixed(1)} %`),
        el("td", { class: "bars" }, length),
      );
    });
    const caption = `Mean of a step: ${format.seconds(found.mean)}`;
    return table("numbers stages", { words: ["Stage"], numbers: ["Seconds", "Share", ""], rows, caption });
  }

  /** Make the part on stages: areas over the steps, and a table. */
  function stages(panel, line, shards) {
    const found = page.stages.ledger(panel, line, shards);
    if (!found) return null;
    const [own] = page.stages.panels(panel, { shards, lines: [line], shown: () => [line] });
    own.render();
    const split = el("div", { class: "split" }, own.root, stageTable(found));
    return { root: section("Stages", "Each second of the driver belongs to one stage.", split), destroy: own.destroy };
  }

  /** Make the part on a step: the choice among the steps that were kept, and the timeline. */
  function lanes(run, params) {
    const { steps } = run.lanes;
    const first = steps[Math.floor(steps.length / 2)];
    const asked = (from) => (from.get("step") ? page.step.nearestStep(steps, Number(from.get("step"))) : first);
    const stepper = new page.Stepper({
      id: "lane-step",
      choose: (step) => route.update({ step }, true),
      hasAll: false,
    });
    const holder = el("div", {});
    let timeline = null;
    async function draw(step) {
      const shard = await page.data.shard(run.lanes.shard.replace("{step}", step));
      if (stepper.step !== step || !holder.isConnected) return;
      timeline?.destroy();
      timeline = new page.lanes.Timeline(step, shard);
      holder.replaceChildren(page.lanes.legend(shard), timeline.root);
      timeline.draw();
    }
    function render(step) {
      stepper.set(steps, step);
      page.charts.setStep(step);
      return draw(step).catch((error) => {
        if (stepper.step === step) holder.replaceChildren(failure(error));
      });
    }
    const note =
      "A lane for each process, a bar for each visit to a stage. Drag to zoom, double-click for the whole step.";
    return {
      root: section("Processes in a step", note, stepper.root, holder),
      start: () => render(asked(params)),
      update: (next) => (asked(next) === stepper.step ? null : render(asked(next))),
      draw: () => timeline?.draw(),
      destroy: () => timeline?.destroy(),
    };
  }

  /** Make a table of the seconds of each process, shaded by its share. */
  function processTable({ stages: all, processes }) {
    const sum = (stage) => processes.reduce((total, { seconds }) => total + (seconds[stage] ?? 0), 0);
    const used = all.filter(sum).sort((left, right) => sum(right) - sum(left));
    const rows = processes.map(({ process, seconds }) => {
      const total = used.reduce((sum, stage) => sum + (seconds[stage] ?? 0), 0);
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, visible(process)),
        used.map((stage) => {
          const cell = el("td", { class: "number" }, seconds[stage] ? seconds[stage].toFixed(1) : "");
          if (seconds[stage]) cell.style.setProperty("--share", `${((60 * seconds[stage]) / total).toFixed(1)}%`);
          return cell;
        }),
        el("td", { class: "number total" }, total.toFixed(1)),
      );
    });
    const numbers = [...used.map(visible), "all"];
    const label = "Seconds of each process in each stage";
    return table("numbers heat", { words: ["Process"], numbers, rows, label });
  }

  function memory({ planned_gib: planned, largest_gib: largest }) {
    if (!largest) return null;
    const most = Math.max(planned ?? 0, largest);
    const row = (name, value, kind) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, name),
        el("td", { class: "number" }, `${format.number(value)} GiB`),
        el("td", { class: "bars" }, bar((100 * value) / most, kind)),
      );
    const verdict =
      planned &&
      (largest > planned
        ? `${((100 * (largest - planned)) / planned).toFixed(1)} % above the plan.`
        : `${((100 * largest) / planned).toFixed(1)} % of the plan.`);
    const rows = [
      planned && row("Planned", planned, "planned"),
      row("Largest process", largest, largest > (planned ?? Infinity) ? "above" : "within"),
    ];
    return section("Memory", verdict, el("table", { class: "numbers memory" }, el("tbody", {}, rows)));
  }

  async function processes(run) {
    if (!run.processes) return null;
    const shard = await page.data.shard(run.processes);
    const note = "Seconds in each stage; a cell is shaded by its share of the process.";
    return [section("Processes in the whole run", note, processTable(shard)), memory(shard.memory)];
  }

  async function stalls(run) {
    if (!run.stalls) return null;
    const found = await page.data.shard(run.stalls);
    return section(
      "Stalls",
      null,
      found.map(({ at, verdict, stacks }) =>
        el(
          "details",
          { class: "stall" },
          el("summary", {}, el("span", { class: "number" }, visible(at)), " ", visible(verdict)),
          el("pre", { tabindex: 0, dir: "auto" }, page.dom.inert(stacks)),
        ),
      ),
    );
  }

  function hasTime(run, head) {
    return run.lanes.steps || run.processes || run.stalls || head.panels.some(({ kind }) => kind === "stack");
  }

  function show(root, params) {
    const head = page.data.head();
    const picked = page.runs.picked(head, params);
    const run = head.runs[picked];
    const timeline = run.lanes.steps ? lanes(run, params) : null;
    const redraw = () => timeline?.draw();
    let areas = null;
    root.append(page.runs.picker(head, picked));
    page.charts.begin({ onStep: (step) => route.update({ step }, true) });
    const ready = (async () => {
      const panel = head.panels.find(({ kind }) => kind === "stack");
      const shard = await page.data.shard(run.curves);
      if (!root.isConnected) return;
      const line = { label: run.name, runs: [picked], isOnly: true };
      areas = panel ? stages(panel, line, new Map([[picked, shard]])) : null;
      root.append(...[areas?.root, timeline?.root].filter(Boolean));
      await timeline?.start();
      const others = [await processes(run), await stalls(run)].flat().filter(Boolean);
      root.append(...others);
      if (!areas && !timeline && !others.length)
        root.append(el("p", { class: "muted" }, "This run has no records of its time."));
    })().catch((error) => root.append(failure(error)));
    page.theme.onChange(redraw);
    return {
      ready,
      update: (next) => {
        if (page.runs.picked(head, next) !== picked) return false;
        timeline?.update(next);
        return true;
      },
      destroy: () => {
        page.theme.forget(redraw);
        timeline?.destroy();
        areas?.destroy();
      },
    };
  }

  page.views ??= {};
  page.views.time = { title: "Time", isAvailable: (head) => head.runs.some((run) => hasTime(run, head)), show };
})((globalThis.verlLikeReport ??= {}));
