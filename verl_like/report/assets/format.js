"use strict";
// Numbers and times as text.
(function (page) {
  const MINUS = "\u2212";
  const BINARY = ["B", "KiB", "MiB", "GiB", "TiB"];
  const SHORT_UNITS = {
    __proto__: null,
    seconds: "s",
    milliseconds: "ms",
    fraction: "",
    score: "",
    reward: "",
    bytes: "B",
  };

  /** Return a number with at least three significant digits, and separators of thousands. */
  function number(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "\u2013";
    if (!Number.isFinite(value)) return value > 0 ? "\u221e" : `${MINUS}\u221e`;
    const size = Math.abs(value);
    let text;
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) text = value.toExponential(2).replace("e+", "e");
    else if (Number.isInteger(value) || size >= 1000) text = Math.round(value).toLocaleString("en-US");
    else if (size < 0.1) text = value.toPrecision(3);
    else text = value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
    return text.replaceAll("-", MINUS);
  }

  /** Return a number without zeros at its end, for a number that stands alone. */
  function short(value) {
    const text = number(value);
    return text.includes("e") ? text : text.replace(/(\.\d*?)0+$/u, "$1").replace(/\.$/u, "");
  }

  /** Return a number with its unit, bytes with a binary prefix. */
  function quantity(value, unit) {
    if (unit === "bytes" && value) {
      const power = Math.min(BINARY.length - 1, Math.max(0, Math.floor(Math.log2(Math.abs(value)) / 10)));
      return `${number(value / 1024 ** power)} ${BINARY[power]}`;
    }
    const short = SHORT_UNITS[unit] ?? unit;
    return short ? `${number(value)} ${short}` : number(value);
  }

  /** Return ticks of an axis: the fewest decimals by which they differ. */
  function ticks(values, unit) {
    if (unit === "bytes") return values.map((value) => (value === null ? "" : quantity(value, unit)));
    const known = values.filter((value) => value !== null);
    const largest = Math.max(...known.map(Math.abs), 0);
    if (largest >= 1e6 || (largest > 0 && largest < 1e-3)) {
      return values.map((value) => (value === null ? "" : value === 0 ? "0" : shortest(value)));
    }
    const isExact = (decimals) =>
      known.every((value) => Math.abs(value - Number(value.toFixed(decimals))) < 1e-6 * largest);
    const decimals = [0, 1, 2, 3, 4, 5].find(isExact) ?? 6;
    const options = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    return values.map((value) => (value === null ? "" : value.toLocaleString("en-US", options).replaceAll("-", MINUS)));
  }

  /** Return a power of ten, or another number of unusual size, in few characters. */
  function shortest(value) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits.replace(/\.0$/, "")}e${Number(power)}`.replaceAll("-", MINUS);
  }

  /** Return ticks of a logarithmic axis, each in its shortest form. */
  function powers(values, unit) {
    const text = (value) => (value >= 1e-3 && value < 1e5 ? String(Number(value.toPrecision(2))) : shortest(value));
    return values.map((value) => (value === null ? "" : unit === "bytes" ? quantity(value, unit) : text(value)));
  }

  /** Return seconds; short ones as milliseconds. */
  function seconds(value) {
    return value !== 0 && Math.abs(value) < 0.1 ? `${number(1000 * value)} ms` : `${number(value)} s`;
  }

  /** Return a time in the zone of the reader. */
  function time(unixSeconds) {
    return new Date(unixSeconds * 1000).toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "short" });
  }

  /** Return a count with its noun: "1 sample", "3 samples". */
  function count(n, noun, nouns = `${noun}s`) {
    return `${n.toLocaleString("en-US")} ${n === 1 ? noun : nouns}`;
  }

  page.format = { number, short, quantity, ticks, powers, seconds, time, count };
})((globalThis.verlLikeReport ??= {}));
