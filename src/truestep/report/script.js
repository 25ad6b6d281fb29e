"use strict";
// Values under the pointer, with one cursor for all charts. The page is complete without it.
(() => {
  // when each step was; a page of several runs has none, since a step has another time in each
  const timelineElement = document.getElementById("timeline");
  const timeline = timelineElement ? JSON.parse(timelineElement.textContent) : null;

  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle; else high = middle;
    }
    return step - steps[low] <= steps[high] - step ? low : high;
  };
  const words = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const text = size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(2)
      : Number.isInteger(value) ? value.toLocaleString("en") : value.toLocaleString("en", { minimumSignificantDigits: 4, maximumSignificantDigits: 4 });
    return text.replace("-", "−");
  };
  const time = (seconds) => {
    const whole = Math.round(seconds), two = (part) => String(part).padStart(2, "0");
    const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
    return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
  };
  const epochOf = (step) => {
    let found = timeline.epochs[0];
    for (const start of timeline.epochs) if (start[0] <= step) found = start;
    return found ? found[1] + 1 : null;
  };
  const made = (name, parent, text) => {
    const element = document.createElement("div");
    element.className = name;
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };

  const charts = [...document.querySelectorAll(".plot")].map((plot) => {
    const chart = JSON.parse(plot.querySelector(".values").textContent);
    const [left, right] = chart.x;
    const across = (step) => (step - left) / (right - left);
    const ends = () => plot.dataset.axis === "other" ? chart.other.y : chart.y;
    const up = (value) => {
      const [low, high, isLog] = ends();
      return isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    };
    let shown = [];

    const clear = () => { shown.forEach((element) => element.remove()); shown = []; };
    const line = (tip, series, index) => {
      const row = made("", tip);
      const swatch = document.createElement("span");
      swatch.className = `swatch ${series.style}`;
      const value = document.createElement("b");
      value.textContent = `${words(series.mean[index])}${chart.unit ? " " + chart.unit : ""}`;
      row.append(swatch, `${series.name} `, value);
      if (series.count && series.count[index] > 1)
        made("", tip, `${words(series.low[index])} to ${words(series.high[index])} in ${series.count[index].toLocaleString("en")} values`);
      if (series.spoiled && series.spoiled[index]) made("bad", tip, series.spoiled[index]);
    };
    const show = (step, withWords) => {
      clear();
      const cursor = made("cursor", plot);
      cursor.style.left = `${100 * across(step)}%`;
      shown.push(cursor);
      const tip = withWords ? made("tip", plot) : null;
      if (tip) {
        shown.push(tip);
        const head = document.createElement("b");
        head.textContent = `step ${step.toLocaleString("en")}`;
        made("", tip).append(head, timeline ? ` · epoch ${epochOf(step)} · ${time(timeline.seconds[nearest(timeline.steps, step)])}` : "");
      }
      chart.series.forEach((series) => {
        if (!series.steps.length) return;
        const index = nearest(series.steps, step), value = series.mean[index];
        if (tip) line(tip, series, index);
        if (value === null || (ends()[2] && value <= 0)) return;
        const dot = made(`at ${series.style}`, plot);
        dot.style.left = `${100 * across(series.steps[index])}%`;
        dot.style.top = `${100 * (1 - up(value))}%`;
        shown.push(dot);
      });
      if (tip) {
        const room = plot.clientWidth, wanted = across(step) * room;
        const beside = wanted + 14 + tip.offsetWidth <= room ? wanted + 14 : wanted - 14 - tip.offsetWidth;
        tip.style.left = `${Math.max(Math.min(beside, room - tip.offsetWidth), -44)}px`;
      }
    };
    const own = { clear, show };

    // every step that some curve of this chart has
    const steps = [...new Set(chart.series.flatMap((series) => series.steps))].sort((a, b) => a - b);
    let current = steps.length - 1;
    const go = (index) => {
      if (!steps.length) return;
      current = Math.max(0, Math.min(steps.length - 1, index));
      charts.forEach((other) => other.show(steps[current], other === own));
    };
    const leave = () => charts.forEach((other) => other.clear());
    const move = (event) => {
      const box = plot.getBoundingClientRect();
      const place = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
      go(nearest(steps, left + place * (right - left)));
    };
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", "Chart; the arrow keys move along the steps");
    plot.addEventListener("pointermove", move);
    plot.addEventListener("pointerdown", move);
    plot.addEventListener("pointerleave", leave);
    plot.addEventListener("blur", leave);
    plot.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      go(current + by);
    });
    // the drawing's own title would show over the values
    plot.querySelectorAll("svg > title").forEach((title) => {
      title.parentElement.setAttribute("aria-label", title.textContent);
      title.remove();
    });
    return own;
  });
})();
