"use strict";
// The page: its head, its navigation, and the view that the address asks for.
(function (page) {
  const { el, visible, failure } = page.dom;
  const { data, format, route } = page;
  const VIEWS = ["curves", "time", "samples", "settings", "advice"];
  let shown = null; // {name, view}

  function title(head) {
    const only = head.runs.length === 1 ? head.runs[0] : null;
    const facts = [
      only?.job,
      Number.isFinite(only?.seed) && `seed ${only.seed}`,
      `made ${format.time(head.made_unix_s)}`,
      head.by,
    ].filter(Boolean);
    document.getElementById("title").replaceChildren(
      el("h1", {}, visible(head.title)),
      ...(only ? [page.summary.status(only)] : []),
      el(
        "p",
        { class: "meta" },
        facts.map((text) => el("span", {}, visible(String(text)))),
      ),
    );
    document.title = visible(head.title);
  }

  function progress(head) {
    const only = head.runs.length === 1 ? head.runs[0] : null;
    const bar = document.getElementById("progress");
    bar.hidden = !only?.total_steps || only.status === "finished";
    if (!bar.hidden) bar.firstElementChild.style.width = `${Math.min(100, (100 * only.step) / only.total_steps)}%`;
  }

  /** Make the links to the views that this head has. */
  function navigation(head) {
    const num = head.runs.reduce((sum, { advisories }) => sum + advisories.length, 0);
    const hasAlarm = page.summary.advisories(head, "alarm").length > 0;
    const links = VIEWS.filter((name) => page.views[name].isAvailable(head)).map((name) =>
      el(
        "a",
        { "data-view": name },
        page.views[name].title,
        name === "advice" && el("span", { class: hasAlarm ? "badge is-alarm" : "badge" }, String(num)),
      ),
    );
    document.getElementById("views").replaceChildren(...links);
  }

  /** Mark the link of the shown view; all keep the run that is shown. The links stay, and so does the focus. */
  function mark(current, params) {
    for (const link of document.getElementById("views").children) {
      link.href = route.hash(link.dataset.view, { run: params.get("run") });
      if (link.dataset.view === current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  function notes(head) {
    const node = document.getElementById("notes");
    node.replaceChildren(...head.notes.map((note) => el("p", {}, visible(note))));
  }

  function showFailure({ message }) {
    document.getElementById("notes").append(failure(`This page failed: ${message}`));
  }

  function show({ view: asked, params }) {
    const head = data.head();
    const name = VIEWS.includes(asked) && page.views[asked].isAvailable(head) ? asked : VIEWS[0];
    mark(name, params);
    if (shown?.name === name && shown.view.update(params)) return;
    const isOther = shown !== null && shown.name !== name;
    shown?.view.destroy();
    page.step.hide();
    page.tip.hide();
    const root = el("div", { class: `view ${name}` });
    document.getElementById("main").replaceChildren(root);
    document.getElementById("main").setAttribute("aria-label", page.views[name].title);
    shown = { name, view: page.views[name].show(root, params) };
    if (isOther) scrollTo(0, Math.min(scrollY, document.getElementById("views").parentElement.offsetTop));
  }

  /** Show a newer head of a live report in the same view, at the same height. */
  function refresh() {
    const height = scrollY;
    const main = document.getElementById("main");
    main.style.minHeight = `${main.offsetHeight}px`;
    shown?.view.destroy();
    shown = null;
    start();
    Promise.resolve(shown.view.ready).then(() => {
      scrollTo(0, height);
      main.style.minHeight = "";
    });
  }

  function start() {
    const head = data.head();
    title(head);
    progress(head);
    notes(head);
    navigation(head);
    show(route.current());
  }

  function skip(event) {
    event.preventDefault();
    document.getElementById("main").focus();
  }

  document.getElementById("theme").append(page.theme.control());
  document.getElementById("skip").addEventListener("click", skip);
  addEventListener("error", showFailure);
  route.onChange(show);
  start();
  const state = document.getElementById("connection");
  const showState = (sentence) => {
    state.textContent = sentence;
  };
  data.watch(refresh, showState).catch(showFailure);
})((globalThis.verlLikeReport ??= {}));
