"use strict";
// Elements of the page. Text reaches the document as text nodes and attributes, never as markup.
(function (page) {
  // Characters that would act on the terminal or on the direction of text, and halves of surrogate pairs. With the flag
  // u, the last class matches only halves without their partner.
  const UNSEEN =
    /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]|[\ud800-\udfff]/gu;

  /** Make an element. Keys that begin with "on" are listeners; null, undefined and false leave an attribute out. */
  function el(name, attributes, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes ?? {})) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false)
        node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }

  /** Return a character that has no form as an escape, which every font can show. */
  function shown(character) {
    const digits = character.codePointAt(0).toString(16);
    return digits.length > 2 ? `\\u${digits.padStart(4, "0")}` : `\\x${digits.padStart(2, "0")}`;
  }

  /** Return the text with all invisible and control characters in a visible form. */
  function visible(text) {
    return text.replaceAll("\r\n", "\n").replace(UNSEEN, shown);
  }

  /** Split a text into nodes: plain text, escapes of invisible characters, and marks of the searched words. */
  function inert(text, query = "") {
    const nodes = [];
    for (const [part, isFound] of splitAt(text.replaceAll("\r\n", "\n"), query)) {
      const children = [];
      let end = 0;
      for (const match of part.matchAll(UNSEEN)) {
        if (match.index > end) children.push(part.slice(end, match.index));
        children.push(el("span", { class: "escape" }, shown(match[0])));
        end = match.index + match[0].length;
      }
      if (end < part.length) children.push(part.slice(end));
      nodes.push(...(isFound ? [el("mark", {}, children)] : children));
    }
    return nodes;
  }

  /** Yield [part, is a hit] of a text; letters match without regard to case. */
  function* splitAt(text, query) {
    const wanted = query.toLowerCase();
    const lower = text.toLowerCase();
    let start = 0;
    // Lower case changes the length of a few letters; hits of such a text have no reliable offset.
    if (wanted && lower.length === text.length) {
      for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, start)) {
        if (at > start) yield [text.slice(start, at), false];
        yield [text.slice(at, at + wanted.length), true];
        start = at + wanted.length;
      }
    }
    if (start < text.length) yield [text.slice(start), false];
  }

  /** Say a sentence to screen readers without moving the focus. */
  function announce(sentence) {
    document.getElementById("announcer").textContent = sentence;
  }

  /** Return whether a key was pressed together with one that gives it a meaning of the browser. */
  function hasModifier({ altKey, ctrlKey, metaKey }) {
    return altKey || ctrlKey || metaKey;
  }

  /** Make a button; ``attributes`` may replace its class. */
  function button(children, onclick, attributes) {
    return el("button", { type: "button", class: "quiet", onclick, ...attributes }, children);
  }

  /** Make a button that stays pressed; ``change(isPressed)`` is called by each click. */
  function toggle(children, isPressed, change, attributes) {
    const press = () => {
      isPressed = !isPressed;
      node.setAttribute("aria-pressed", String(isPressed));
      change(isPressed);
    };
    const node = button(children, press, { "aria-pressed": String(isPressed), ...attributes });
    return node;
  }

  /** Make a button that copies a text; where the page may not use the clipboard, it uses execCommand. */
  function copyButton(text, label, caption = "Copy") {
    const node = button(caption, () => copy(text, node, caption), { "aria-label": `Copy ${label}` });
    return node;
  }

  async function copy(text, node, caption) {
    let isCopied = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = el("textarea", { class: "off-screen" });
      area.value = text;
      document.body.append(area);
      area.select();
      isCopied = document.execCommand("copy");
      area.remove();
      node.focus();
    }
    node.textContent = isCopied ? "Copied" : "Not copied";
    setTimeout(() => {
      node.textContent = caption;
    }, 1500);
  }

  /** Make a labelled select of [value, text] pairs. */
  function select(label, pairs, value, onchange) {
    const node = el(
      "select",
      { onchange: () => onchange(node.value) },
      pairs.map(([key, text]) => el("option", { value: key }, text)),
    );
    node.value = value;
    return el("label", { class: "field" }, el("span", {}, label), node);
  }

  /** Make an input of words, kept in the address. ``apply(passes, hasWords)`` gets the test of a text at a change. */
  function words(noun, params, apply) {
    const node = el("input", {
      type: "search",
      placeholder: `Filter ${noun}`,
      "aria-label": `Filter ${noun} by words`,
      value: params.get("q"),
      oninput: () => fill(),
      onchange: () => page.route.update({ q: node.value.trim() }, true),
    });
    function fill() {
      const wanted = node.value.toLowerCase().split(/\s+/u).filter(Boolean);
      apply((text) => wanted.every((word) => text.toLowerCase().includes(word)), wanted.length > 0);
    }
    return { node, fill };
  }

  /** Make a table: columns of words, then columns of numbers. One with a label scrolls if it is wide. */
  function table(kind, { words: texts, numbers = [], rows, caption, label }) {
    const head = (text, own) => (text ? el("th", { scope: "col", class: own }, text) : el("td", {}));
    const node = el(
      "table",
      { class: kind },
      caption && el("caption", {}, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          texts.map((text) => head(text, null)),
          numbers.map((text) => head(text, "number")),
        ),
      ),
      el("tbody", {}, rows),
    );
    return label ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, node) : node;
  }

  /** Make the mark of a colour in a legend: a line, with the dashes of its curve, or a filled square. */
  function swatch(hue, dash = null) {
    const node = el("span", { class: dash ? "swatch line" : "swatch", "aria-hidden": "true" });
    node.style.setProperty("--hue", `var(--${hue})`);
    if (dash?.length) node.style.setProperty("--dash", dash[0] < 4 ? "dotted" : "dashed");
    return node;
  }

  /** Show an error where something could not be shown. */
  function failure(error) {
    return el("p", { class: "failure", role: "alert" }, String(error instanceof Error ? error.message : error));
  }

  const controls = { button, toggle, copyButton, select, words };
  page.dom = { el, visible, inert, announce, hasModifier, ...controls, table, swatch, failure };
})((globalThis.verlLikeReport ??= {}));
