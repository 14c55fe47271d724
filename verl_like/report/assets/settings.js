"use strict";
// The view of settings: options with their origin and default, the environment, the versions, the commands.
(function (page) {
  const { el, visible, copyButton, table, failure } = page.dom;

  /** Return rows {name, standard, values, origins, isChanged, differs, unit, help}; ``standard`` is the default. */
  function merged(shards) {
    const rows = new Map();
    for (const [at, { options }] of shards.entries()) {
      for (const { name, value, default: standard, origin, is_changed: isChanged, unit, help } of options) {
        if (!rows.has(name))
          rows.set(name, {
            name,
            standard,
            unit,
            help,
            values: shards.map(() => null),
            origins: shards.map(() => null),
            isChanged: false,
          });
        const row = rows.get(name);
        row.values[at] = value;
        row.origins[at] = origin;
        row.isChanged ||= isChanged;
      }
    }
    for (const row of rows.values()) row.differs = new Set(row.values).size > 1;
    return [...rows.values()].sort((left, right) => (left.name < right.name ? -1 : 1));
  }

  function line({ name, values, standard, origins, unit, help }, isSeveral) {
    const origin = origins.find((each) => each && each !== "default") ?? "default";
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, el("code", {}, visible(name)), help && el("span", { class: "help" }, visible(help))),
      values.map((value, at) =>
        el(
          "td",
          {
            "data-label": isSeveral ? null : "value",
            class: value !== standard ? "changed" : null,
            "data-tip": isSeveral ? origins[at] : null,
          },
          el("code", {}, value === null ? "\u2013" : visible(value)),
          unit && !isSeveral && el("span", { class: "unit" }, ` ${visible(unit)}`),
        ),
      ),
      el("td", { "data-label": "default" }, el("code", { class: "muted" }, visible(standard))),
      !isSeveral && el("td", { "data-label": "origin", class: "origin" }, visible(origin)),
    );
  }

  function optionTable(rows, names) {
    const isSeveral = names.length > 1;
    const words = isSeveral ? ["Option", ...names.map(visible), "Default"] : ["Option", "Value", "Default", "Origin"];
    return table("options", { words, rows: rows.map((row) => line(row, isSeveral)), label: "Options" });
  }

  /** Make the table of options with its filters: words, changed ones alone, those that differ between runs. */
  function options(rows, names, params) {
    const isSeveral = names.length > 1;
    const box = (label, isOn, name) => {
      const change = () => {
        page.route.update({ [name]: input.checked ? "1" : "0" }, true);
        words.fill();
      };
      const input = el("input", { type: "checkbox", onchange: change, checked: isOn });
      return [input, el("label", { class: "check" }, input, label)];
    };
    const [changed, changedLabel] = box("changed only", params.get("changed") !== "0", "changed");
    const [differing, differingLabel] = box("different between runs", params.get("differs") === "1", "differs");
    const holder = el("div", {});
    const count = el("p", { class: "count", role: "status" });
    const words = page.dom.words("options", params, (passes) => {
      const found = rows.filter(
        (row) =>
          (!changed.checked || row.isChanged) &&
          (!isSeveral || !differing.checked || row.differs) &&
          passes(`${row.name} ${row.help} ${row.values.join(" ")}`),
      );
      count.textContent = `${found.length} of ${page.format.count(rows.length, "option")}`;
      holder.replaceChildren(optionTable(found, names));
    });
    words.fill();
    return el(
      "section",
      { class: "block" },
      el("h2", {}, "Options"),
      el("div", { class: "tools" }, words.node, changedLabel, isSeveral && differingLabel, count),
      holder,
    );
  }

  function pairs(title, values) {
    const rows = Object.entries(values);
    if (!rows.length) return null;
    return el(
      "section",
      { class: "block" },
      el("h2", {}, title),
      el(
        "dl",
        { class: "pairs" },
        rows.map(([name, value]) => el("div", {}, el("dt", {}, visible(name)), el("dd", {}, visible(value)))),
      ),
    );
  }

  function starts(run) {
    if (!run.starts.length) return null;
    return el(
      "section",
      { class: "block" },
      el("h2", {}, run.starts.length === 1 ? "Command" : "Commands"),
      el(
        "ol",
        { class: "starts" },
        run.starts.map(({ at, command }) =>
          el(
            "li",
            {},
            el(
              "div",
              { class: "start-head" },
              el("span", { class: "number" }, visible(at)),
              copyButton(command, "the command"),
            ),
            el("pre", { tabindex: 0 }, visible(command)),
          ),
        ),
      ),
    );
  }

  function show(root, params) {
    const head = page.data.head();
    const picked = page.runs.picked(head, params);
    const run = head.runs[picked];
    const ready = (async () => {
      const shards = await Promise.all(head.runs.map(({ settings }) => page.data.shard(settings)));
      if (!root.isConnected) return;
      root.append(
        options(
          merged(shards),
          head.runs.map(({ name }) => name),
          params,
        ),
        page.runs.picker(head, picked),
        ...[starts(run), pairs("Environment", run.environment), pairs("Versions", run.versions)].filter(Boolean),
      );
    })().catch((error) => root.append(failure(error)));
    return { ready, update: (next) => page.runs.picked(head, next) === picked, destroy: () => {} };
  }

  page.views ??= {};
  page.views.settings = { title: "Settings", isAvailable: () => true, show };
})((globalThis.verlLikeReport ??= {}));
