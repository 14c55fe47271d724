"use strict";
// Light and dark: the system's choice, or the reader's; and the colours and the font for canvases.
(function (page) {
  const CHOICES = ["auto", "light", "dark"];
  const KEY = "verl-like-report-theme";
  const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  const listeners = new Set();
  const known = new Map();
  let choice = stored();

  function stored() {
    try {
      return CHOICES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto";
    } catch {
      return "auto"; // a page from a file may have no storage
    }
  }

  function apply() {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    known.clear();
  }

  function choose(next) {
    choice = next;
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // The choice holds until the page is closed.
    }
    apply();
    for (const listener of listeners) listener();
  }

  /** Return a custom property of the style sheet as a colour that a canvas understands. */
  function color(name) {
    if (!known.has(name)) {
      const probe = document.getElementById("announcer");
      probe.style.color = `var(--${name})`;
      known.set(name, getComputedStyle(probe).color);
      probe.style.color = "";
    }
    return known.get(name);
  }

  /** Return the colour with an opacity. */
  function wash(name, opacity) {
    return color(name).replace("rgb(", "rgba(").replace(")", `, ${opacity})`);
  }

  /** Make the switch between the three choices. */
  function control() {
    const { el, button } = page.dom;
    const press = (name) => {
      choose(name);
      for (const [index, node] of buttons.entries()) node.setAttribute("aria-pressed", String(CHOICES[index] === name));
    };
    const buttons = CHOICES.map((name) =>
      button(name[0].toUpperCase() + name.slice(1), () => press(name), {
        class: null,
        "aria-pressed": String(name === choice),
      }),
    );
    return el("div", { class: "switch", role: "group", "aria-label": "Colours of the page" }, buttons);
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => choose(choice));
  apply();
  page.theme = {
    FONT,
    color,
    wash,
    control,
    onChange: (listener) => listeners.add(listener),
    forget: (listener) => listeners.delete(listener),
  };
})((globalThis.verlLikeReport ??= {}));
