"use strict";
// A step as a timeline: a lane for each process, a bar for each visit to a stage.
(function (page) {
  const { el, visible, swatch, announce, hasModifier } = page.dom;
  const { format, theme } = page;
  const LANE = 22,
    SMALL_LANE = 10,
    GAP = 3,
    AXIS = 22,
    MANY = 64;
  const DRAG_PX = 4;

  /** Return the milliseconds between ticks: 1, 2 or 5 times a power of ten, for about one tick each 90 pixels. */
  function tickEvery(span, width) {
    const wanted = (span * 90) / width;
    const power = 10 ** Math.floor(Math.log10(wanted));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= wanted);
  }

  function hasSpans({ spans }) {
    return spans.length > 0;
  }

  /** A drawn step. Its state: the shown range in ms, and the span under the cursor or the keys. */
  class Timeline {
    constructor(step, { stages, lanes, start, end }) {
      this.stages = stages;
      this.lanes = lanes;
      this.whole = [0, Math.max(1, 1000 * (end - start))];
      this.range = this.whole;
      this.chosen = null; // {lane, index}
      const size = `${format.count(lanes.length, "process", "processes")} in ${format.seconds(end - start)}`;
      this.canvas = el("canvas", {
        tabindex: 0,
        role: "application",
        "aria-roledescription": "timeline",
        "aria-label": `Step ${step}: ${size}. Arrow keys move through the spans and processes, plus and minus zoom.`,
      });
      this.root = el("div", { class: "timeline" }, this.canvas);
      this.listen();
      this.resizes = new ResizeObserver(() => this.draw());
      this.resizes.observe(this.root);
    }

    get lane() {
      return this.lanes.length > MANY ? SMALL_LANE : LANE;
    }

    /** Width of the names at the left, in CSS pixels. */
    get left() {
      return Math.min(this.width * 0.3, this.nameWidth + 12);
    }

    x(ms) {
      return this.left + ((ms - this.range[0]) / (this.range[1] - this.range[0])) * (this.width - this.left);
    }

    ms(x) {
      return this.range[0] + ((x - this.left) / (this.width - this.left)) * (this.range[1] - this.range[0]);
    }

    draw() {
      const ratio = devicePixelRatio || 1;
      this.width = Math.max(200, this.root.clientWidth);
      const height = AXIS + this.lanes.length * (this.lane + GAP);
      this.canvas.width = this.width * ratio;
      this.canvas.height = height * ratio;
      this.canvas.style.width = `${this.width}px`;
      this.canvas.style.height = `${height}px`;
      const context = this.canvas.getContext("2d");
      context.scale(ratio, ratio);
      context.font = theme.FONT;
      this.nameWidth = Math.max(...this.lanes.map(({ process }) => context.measureText(visible(process)).width), 20);
      this.drawAxis(context, height);
      this.lanes.forEach((lane, index) => this.drawLane(context, lane, index));
      this.drawChosen(context);
    }

    drawAxis(context, height) {
      const every = tickEvery(this.range[1] - this.range[0], this.width - this.left);
      context.textBaseline = "alphabetic";
      for (let ms = Math.ceil(this.range[0] / every) * every; ms <= this.range[1]; ms += every) {
        const x = Math.round(this.x(ms));
        context.fillStyle = theme.color("line");
        context.fillRect(x, AXIS - 5, 1, height);
        context.fillStyle = theme.color("muted");
        const text = `${Number((ms / 1000).toPrecision(6))} s`;
        const width = context.measureText(text).width;
        context.fillText(text, Math.min(this.width - width, Math.max(this.left, x - width / 2)), AXIS - 9);
      }
    }

    drawLane(context, { process, spans }, index) {
      const top = AXIS + index * (this.lane + GAP);
      context.fillStyle = theme.color("sunken");
      context.fillRect(this.left, top, this.width - this.left, this.lane);
      for (const [stage, start, end] of spans) {
        if (end < this.range[0] || start > this.range[1]) continue;
        const from = Math.max(this.left, this.x(start));
        const width = Math.max(0.6, Math.min(this.width, this.x(end)) - from);
        context.fillStyle = theme.color(page.stages.hue(this.stages[stage]));
        context.fillRect(from, top, width > 3 ? width - 0.6 : width, this.lane);
      }
      if (this.lane < LANE) return;
      context.fillStyle = theme.color("ink");
      context.textBaseline = "middle";
      context.fillText(visible(process), 0, top + this.lane / 2, this.left - 10);
    }

    drawChosen(context) {
      if (!this.chosen) return;
      const [, start, end] = this.lanes[this.chosen.lane].spans[this.chosen.index];
      const from = Math.max(this.left, this.x(start));
      context.strokeStyle = theme.color("ink");
      context.lineWidth = 2;
      context.strokeRect(
        from,
        AXIS + this.chosen.lane * (this.lane + GAP),
        Math.max(2, Math.min(this.width, this.x(end)) - from),
        this.lane,
      );
    }

    /** Return the span at a point of the canvas, or null. */
    at(x, y) {
      const lane = Math.floor((y - AXIS) / (this.lane + GAP));
      if (x < this.left || lane < 0 || lane >= this.lanes.length) return null;
      const ms = this.ms(x);
      const slack = (this.range[1] - this.range[0]) / (this.width - this.left);
      const index = this.lanes[lane].spans.findIndex(([, start, end]) => start - slack <= ms && ms <= end + slack);
      return index < 0 ? null : { lane, index };
    }

    sentence({ lane, index }) {
      const [stage, start, end] = this.lanes[lane].spans[index];
      const [length, from] = [end - start, start].map((ms) => format.seconds(ms / 1000));
      return `${visible(this.lanes[lane].process)}: ${visible(this.stages[stage])}, ${length} from ${from}`;
    }

    choose(span, rectangle) {
      const isSame = span?.lane === this.chosen?.lane && span?.index === this.chosen?.index;
      this.chosen = span;
      if (!isSame) this.draw();
      if (span) page.tip.show([this.sentence(span)], rectangle);
      else page.tip.hide();
    }

    zoom(range) {
      const [low, high] = [Math.max(this.whole[0], range[0]), Math.min(this.whole[1], range[1])];
      if (high - low < 0.01) return;
      this.range = [low, high];
      this.draw();
    }

    listen() {
      let start = null;
      this.canvas.addEventListener("pointerdown", (event) => {
        start = event.offsetX;
        this.canvas.setPointerCapture(event.pointerId); // a drag may end outside
      });
      this.canvas.addEventListener("pointerup", (event) => {
        if (start !== null && Math.abs(event.offsetX - start) > DRAG_PX)
          this.zoom([this.ms(Math.min(start, event.offsetX)), this.ms(Math.max(start, event.offsetX))]);
        start = null;
      });
      this.canvas.addEventListener("dblclick", () => this.zoom(this.whole));
      this.canvas.addEventListener("pointermove", (event) =>
        this.choose(this.at(event.offsetX, event.offsetY), {
          left: event.clientX + 8,
          top: event.clientY - 8,
          bottom: event.clientY + 8,
        }),
      );
      this.canvas.addEventListener("pointerleave", () => this.choose(null));
      this.canvas.addEventListener("keydown", (event) => this.key(event));
    }

    key(event) {
      if (hasModifier(event)) return;
      const { lane, index } = this.chosen ?? { lane: this.lanes.findIndex(hasSpans), index: -1 };
      const [low, high] = this.range;
      const middle = (low + high) / 2;
      const moves = {
        ArrowRight: [lane, index + 1],
        ArrowLeft: [lane, index - 1],
        ArrowDown: [this.lanes.findIndex((each, at) => at > lane && hasSpans(each)), 0],
        ArrowUp: [this.lanes.findLastIndex((each, at) => at < lane && hasSpans(each)), 0],
        Home: [lane, 0],
      };
      if (event.key === "+") this.zoom([middle - (high - low) / 4, middle + (high - low) / 4]);
      else if (event.key === "-") this.zoom([middle - (high - low), middle + (high - low)]);
      else if (event.key === "Escape") this.zoom(this.whole);
      else if (!moves[event.key]) return;
      else this.move(...moves[event.key]);
      event.preventDefault();
    }

    move(lane, index) {
      const span = this.lanes[lane]?.spans[index];
      if (!span) return;
      if (span[2] < this.range[0] || span[1] > this.range[1]) this.zoom(this.whole);
      const box = this.canvas.getBoundingClientRect();
      const top = box.top + AXIS + lane * (this.lane + GAP);
      this.choose(
        { lane, index },
        { left: box.left + Math.max(this.left, this.x(span[1])), top, bottom: top + this.lane },
      );
      announce(this.sentence({ lane, index }));
    }

    destroy() {
      this.resizes.disconnect();
      page.tip.hide();
    }
  }

  /** Make the legend of the stages that occur in a step. */
  function legend({ stages, lanes }) {
    const seconds = new Map();
    for (const { spans } of lanes)
      for (const [stage, start, end] of spans) seconds.set(stage, (seconds.get(stage) ?? 0) + (end - start) / 1000);
    const rows = [...seconds].sort((left, right) => right[1] - left[1]);
    const { root, show } = page.charts.legend(
      rows.map(([stage, sum]) => ({
        mark: swatch(page.stages.hue(stages[stage])),
        name: stages[stage],
        text: () => format.seconds(sum),
      })),
    );
    show(0);
    return root;
  }

  page.lanes = { Timeline, legend };
})((globalThis.verlLikeReport ??= {}));
