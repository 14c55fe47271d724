"use strict";
// The head and the shards of the report. A shard is base64 of gzip of JSON, and is decoded when it is first needed.
(function (page) {
  // Characters of decoded JSON that stay in memory; the objects made of them take several times as much.
  const MAX_CACHED_CHARACTERS = 24e6;
  const cache = new Map(); // name -> {promise, size}, the least recently used first
  let head = JSON.parse(document.getElementById("head").textContent);

  const parsed = new Promise((resolve) => {
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve, { once: true });
    else resolve();
  });

  /** Return the element of a shard, or null as long as the parser may still be writing its text. */
  function whole(name) {
    const node = document.getElementById(`shard-${name}`);
    return node && (document.readyState !== "loading" || node.nextElementSibling) ? node : null;
  }

  async function base64(name) {
    if (head.live) {
      const answer = await fetch(`shards/${encodeURIComponent(name)}`, { cache: "no-store" });
      if (!answer.ok)
        throw new Error(
          `Found no part "${name}" (status ${answer.status}): the run may have been removed. Reload the page.`,
        );
      return answer.text();
    }
    if (!whole(name)) await parsed;
    const node = whole(name);
    if (!node) throw new Error(`Found no part "${name}" in this file: it is incomplete. Make the report again.`);
    return node.textContent;
  }

  function bytes(text) {
    const trimmed = text.trim();
    return Uint8Array.fromBase64
      ? Uint8Array.fromBase64(trimmed)
      : Uint8Array.from(atob(trimmed), (character) => character.charCodeAt(0));
  }

  async function json(name) {
    const packed = bytes(await base64(name));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(unpacked).text();
  }

  function evict(newest) {
    let total = 0;
    for (const entry of cache.values()) total += entry.size;
    for (const [name, entry] of cache) {
      if (total <= MAX_CACHED_CHARACTERS) return;
      if (entry === newest) continue;
      total -= entry.size;
      cache.delete(name);
    }
  }

  /** Return the value of a shard, from the cache if it was used recently. */
  function shard(name) {
    const known = cache.get(name);
    if (known) {
      cache.delete(name);
      cache.set(name, known);
      return known.promise;
    }
    const entry = { size: 0, promise: null };
    entry.promise = json(name).then((text) => {
      entry.size = text.length;
      evict(entry);
      return JSON.parse(text);
    });
    entry.promise.catch(() => {
      if (cache.get(name) === entry) cache.delete(name);
    });
    cache.set(name, entry);
    return entry.promise;
  }

  /** Return the value of a shard and leave the cache as it is: for a pass over all shards. */
  async function passing(name) {
    return cache.has(name) ? cache.get(name).promise : JSON.parse(await json(name));
  }

  /** Return the head that the server of a live report has now, or the known one if the server does not answer. */
  async function polled(onState) {
    try {
      const answer = await fetch("head.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const newest = await answer.json();
      onState("");
      return newest;
    } catch (error) {
      onState(`No connection (${error.message}); trying again every ${head.live.every_s} s.`);
      return head;
    }
  }

  /** Return whether a control of the view is in use, which a new view would take from the reader. */
  function isInUse() {
    return document.hasFocus() && document.activeElement.matches("main :is(input, select)");
  }

  /** Poll the server of a live report; call ``onChange`` for each newer head. */
  async function watch(onChange, onState) {
    while (head.live) {
      await new Promise((resolve) => setTimeout(resolve, 1000 * head.live.every_s));
      const newest = await polled(onState);
      if (newest.live.version === head.live.version || isInUse()) continue;
      head = newest;
      cache.clear();
      onChange();
    }
  }

  page.data = { head: () => head, shard, passing, watch };
})((globalThis.verlLikeReport ??= {}));
