"use strict";
// One tooltip for the page. An element with data-tip shows it under the pointer and while it has the focus.
(function (page) {
  const { el } = page.dom;
  const MARGIN = 8;
  const box = el("div", { class: "tip", role: "tooltip", id: "tip", hidden: true });
  let target = null;

  function placeAt(rectangle) {
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = Math.min(Math.max(MARGIN, rectangle.left), document.documentElement.clientWidth - width - MARGIN);
    const isAbove = rectangle.bottom + height + MARGIN > innerHeight && rectangle.top > height + MARGIN;
    box.style.left = `${left}px`;
    box.style.top = `${isAbove ? rectangle.top - height - 6 : rectangle.bottom + 6}px`;
  }

  /** Show nodes next to a rectangle of the window. */
  function show(nodes, rectangle) {
    box.replaceChildren(...nodes);
    placeAt(rectangle);
  }

  function hide() {
    target = null;
    box.hidden = true;
  }

  function enter(event) {
    const next = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    if (next === target) return;
    if (!next) {
      if (target) hide();
      return;
    }
    target = next;
    show([next.dataset.tip], next.getBoundingClientRect());
  }

  document.body.append(box);
  document.addEventListener("mouseover", enter);
  document.addEventListener("focusin", enter);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("scroll", hide, { passive: true, capture: true });
  page.tip = { show, hide };
})((globalThis.verlLikeReport ??= {}));
