"use strict";
// Values under the pointer, with one cursor for all charts. The page is complete without it.
(() => {
  const nearest = (places, at) => {
    let low = 0, high = places.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (places[middle] < at) low = middle; else high = middle;
    }
    return at - places[low] <= places[high] - at ? low : high;
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
  // Of one run all is known at a step; of several, where the cursor is on their common axis.
  const where = ({ at, step }) => {
    const run = horizontal.runs.length === 1 && horizontal.runs[0], counted = `step ${step.toLocaleString("en")}`;
    if (run) return [counted, ` · epoch ${Math.max(1, Math.ceil(horizontal.at(run.epoch, step)))} · ${time(horizontal.at(run.time, step))}`];
    return [{ step: counted, epoch: `epoch ${at.toFixed(2)}`, time: time(at) }[horizontal.by], ""];
  };
  const put = (name, parent, text) => {
    const element = document.createElement("div");
    element.className = name;
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };

  const charts = horizontal.charts.map(({ plot, chart }) => {
    const across = (at) => (at - chart.ends[0]) / (chart.ends[1] - chart.ends[0]);
    const ends = () => plot.dataset.axis === "other" ? chart.other.y : chart.y;
    const up = (value) => {
      const [low, high, isLog] = ends();
      return isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    };
    let shown = [];

    const clear = () => { shown.forEach((element) => element.remove()); shown = []; };
    const line = (tip, series, index) => {
      const row = put("", tip);
      const swatch = document.createElement("span");
      swatch.className = `swatch ${series.style}`;
      const value = document.createElement("b");
      value.textContent = `${words(series.mean[index])}${chart.unit ? " " + chart.unit : ""}`;
      row.append(swatch, `${series.name} `, value);
      if (series.count && series.count[index] > 1)
        put("", tip, `${words(series.low[index])} to ${words(series.high[index])} in ${series.count[index].toLocaleString("en")} values`);
      if (series.spoiled && series.spoiled[index]) put("bad", tip, series.spoiled[index]);
    };
    const show = (place, withWords) => {
      clear();
      const cursor = put("cursor", plot);
      cursor.style.left = `${100 * across(place.at)}%`;
      shown.push(cursor);
      const tip = withWords ? put("tip", plot) : null;
      if (tip) {
        shown.push(tip);
        const [first, rest] = where(place), head = document.createElement("b");
        head.textContent = first;
        put("", tip).append(head, rest);
      }
      chart.series.forEach((series) => {
        if (!series.steps.length) return;
        const index = nearest(series.at, place.at), value = series.mean[index];
        if (tip) line(tip, series, index);
        if (value === null || (ends()[2] && value <= 0)) return;
        const dot = put(`at ${series.style}`, plot);
        dot.style.left = `${100 * across(series.at[index])}%`;
        dot.style.top = `${100 * (1 - up(value))}%`;
        shown.push(dot);
      });
      if (tip) {
        const room = plot.clientWidth, wanted = across(place.at) * room;
        const beside = wanted + 14 + tip.offsetWidth <= room ? wanted + 14 : wanted - 14 - tip.offsetWidth;
        tip.style.left = `${Math.max(Math.min(beside, room - tip.offsetWidth), -44)}px`;
      }
    };
    const own = { clear, show };

    // every place that some curve of this chart has a point at
    let places = [], current = 0;
    const collect = () => {
      const found = new Map();
      chart.series.forEach((series) => series.steps.forEach((step, index) => {
        const at = series.at[index];
        found.set(horizontal.runs.length > 1 ? at : step, { at, step });
      }));
      places = [...found.values()].sort((a, b) => a.at - b.at || a.step - b.step);
      current = places.length - 1;
      clear();
    };
    horizontal.listeners.push(collect);
    collect();
    const go = (index) => {
      if (!places.length) return;
      current = Math.max(0, Math.min(places.length - 1, index));
      charts.forEach((other) => other.show(places[current], other === own));
    };
    const leave = () => charts.forEach((other) => other.clear());
    const move = (event) => {
      const box = plot.getBoundingClientRect();
      const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
      go(nearest(places.map((place) => place.at), chart.ends[0] + share * (chart.ends[1] - chart.ends[0])));
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
