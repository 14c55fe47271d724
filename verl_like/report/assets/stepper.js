"use strict";
// The choice of a step: a slider, buttons to the neighbours, and one for all steps.
(function (page) {
  const { el, button, hasModifier } = page.dom;

  class Stepper {
    /** ``choose(step)`` is called with a step of the list, or with "all". */
    constructor({ id, choose, hasAll }) {
      this.choose = choose;
      this.steps = [];
      this.slider = el("input", {
        type: "range",
        min: 0,
        step: 1,
        id,
        oninput: () => this.to(Number(this.slider.value)),
      });
      this.output = el("output", { for: id });
      this.all = button("all steps", () => choose(this.step === null ? this.last : "all"));
      this.root = el(
        "div",
        { class: "stepper" },
        el("label", { for: id }, "Step"),
        button("\u2190", () => this.move(-1), { "aria-label": "Previous step" }),
        this.slider,
        button("\u2192", () => this.move(1), { "aria-label": "Next step" }),
        this.output,
        hasAll && this.all,
      );
    }

    get last() {
      return this.steps[this.steps.length - 1];
    }

    get position() {
      return this.step === null ? this.steps.length - 1 : this.steps.indexOf(this.step);
    }

    /** Show a step, or null for all. */
    set(steps, step) {
      this.steps = steps;
      this.step = step;
      this.slider.max = String(steps.length - 1);
      this.slider.value = String(this.position);
      this.slider.setAttribute("aria-valuetext", step === null ? "all steps" : `step ${step}`);
      this.output.textContent = step === null ? "all" : step === this.last ? `${step}` : `${step} of ${this.last}`;
      this.all.setAttribute("aria-pressed", String(step === null));
    }

    to(position) {
      const step = this.steps[Math.min(this.steps.length - 1, Math.max(0, position))];
      if (step !== undefined && step !== this.step) this.choose(step);
    }

    move(by) {
      this.to(this.position + by);
    }

    /** Move by the arrow keys that an element gets which has no other use for them. */
    listen(node) {
      node.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!by || hasModifier(event)) return;
        event.preventDefault();
        this.move(by);
      });
    }
  }

  page.Stepper = Stepper;
})((globalThis.verlLikeReport ??= {}));
