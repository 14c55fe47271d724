"use strict";
// The state of the page in the hash of its address: "#/samples?run=0&step=12&row=3". Links to it can be copied.
(function (page) {
  const FIRST_VIEW = "curves";

  /** Return {view, params} of the address. */
  function current() {
    const match = /^#\/(\w+)(?:\?(.*))?$/su.exec(location.hash);
    return { view: match?.[1] ?? FIRST_VIEW, params: new URLSearchParams(match?.[2] ?? "") };
  }

  /** Return the hash of a view; values that are null or "" are left out. */
  function hash(view, params = {}) {
    const known = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const query = new URLSearchParams(known.map(([key, value]) => [key, String(value)])).toString();
    return `#/${view}${query && `?${query}`}`;
  }

  /** Change some values of the present view; a change of the same thing, such as a slider's, replaces the entry. */
  function update(changes, replaces = false) {
    const { view, params } = current();
    const next = hash(view, { ...Object.fromEntries(params), ...changes });
    if (next === location.hash) return;
    if (replaces) location.replace(next);
    else location.hash = next;
  }

  /** Call a function with each new state. */
  function onChange(listener) {
    addEventListener("hashchange", () => listener(current()));
  }

  page.route = { current, hash, update, onChange };
})((globalThis.verlLikeReport ??= {}));
