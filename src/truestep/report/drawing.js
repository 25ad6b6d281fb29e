"use strict";
// Draws a chart again when the reader chooses smoothing or another axis. Without scripts the page shows the values as they are.
const made = (name, parent, text) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
};

const drawings = (() => {
  const SIZE = 1000, FEW = 60, NEAR = 6, EDGE = 60, MAX_EPOCH_LINES = 20;
  const inSvg = (name, parent, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const anchor = (share, edge) => share < edge ? "start" : share > 1 - edge ? "end" : "middle";
  const percent = (share) => `${(100 * share).toFixed(2)}%`;

  // An average whose weights fall with the distance, divided by their sum so that it is not drawn to zero at its start.
  const smoothed = (values, weight) => {
    let sum = 0, weights = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      weights = weight * weights + (1 - weight);
      return sum / weights;
    });
  };

  return horizontal.charts.map(({ plot, chart }) => {
    const own = { plot, chart, title: plot.parentElement.querySelector("h3").textContent, y: chart.y, smoothing: 0 };
    const [values, ticks, behind, words] = [".values-grid", ".steps-grid", ".behind", ".spoiled-words"].map((name) => plot.querySelector(name));
    const groups = [...plot.querySelectorAll("svg > svg > g:not(.behind)")];
    const initial = new Map([values, ticks, behind, words, ...groups].map((group) => [group, [...group.childNodes]]));
    const restore = (group) => group.replaceChildren(...initial.get(group));
    const epochStarts = [...behind.querySelectorAll(".epoch")].map((line) =>
      chart.x[0] + parseFloat(line.getAttribute("d").slice(1)) / SIZE * (chart.x[1] - chart.x[0]));

    const share = (at) => (at - chart.ends[0]) / (chart.ends[1] - chart.ends[0]);
    const x = (at) => Math.round(100 * SIZE * share(at)) / 100;
    const y = (value) => {
      const [low, high, isLog] = own.y;
      const place = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
      return Math.round(10 * SIZE * (1 - Math.min(1, Math.max(0, place)))) / 10;
    };
    // the stretches between gaps, as lists of indices
    const stretches = (values) => {
      const found = [[]];
      values.forEach((value, index) => {
        if (value === null || (own.y[2] && value <= 0)) found.push([]); else found[found.length - 1].push(index);
      });
      return found.filter((stretch) => stretch.length);
    };
    const draw = (group, series) => {
      group.replaceChildren();
      const { at, mean, low, high } = series, parts = stretches(mean);
      const points = (values, stretch) => stretch.map((index) => `${x(at[index])} ${y(values[index])}`).join(" ");
      const line = (values) => parts.map((part) => `M${points(values, part)}`).join("");
      if (low) {
        const band = parts.map((part) => `M${points(high, part)} ${points(low, [...part].reverse())}Z`).join("");
        inSvg("path", group, { class: "band", d: band });
      }
      inSvg("path", group, { class: "line", d: line(mean) });
      const dotted = parts.filter((part) => at.length <= FEW || part.length === 1).flat();
      if (dotted.length) inSvg("path", group, { class: "dots", d: dotted.map((index) => `M${x(at[index])} ${y(mean[index])}h.01`).join("") });
      if (own.smoothing) inSvg("path", group, { class: "line soft", d: line(smoothed(mean, own.smoothing)) });
    };

    // where values were NaN or infinite, near places as one
    const spoiled = () => {
      const marks = chart.series.flatMap((series) => Object.entries(series.spoiled || {}).map(([index, text]) =>
        [x(series.at[index]), text.endsWith("NaN") ? "NaN" : "∞"]));
      const spans = [];
      for (const [place, word] of marks.sort((a, b) => a[0] - b[0])) {
        const last = spans[spans.length - 1];
        if (!last || place - last.right > NEAR) spans.push({ left: place, right: place, word });
        else Object.assign(last, { right: place, word: word === last.word ? word : "NaN, ∞" });
      }
      return spans;
    };
    const drawBehind = () => {
      behind.replaceChildren();
      words.replaceChildren();
      // with several runs an epoch begins at another time in each
      if (horizontal.by === "time" && horizontal.runs.length === 1 && epochStarts.length < MAX_EPOCH_LINES)
        for (const step of epochStarts) inSvg("path", behind, { class: "epoch", d: `M${x(horizontal.place(step))} 0V${SIZE}` });
      let free = -Infinity;
      for (const { left, right, word } of spoiled()) {
        inSvg("rect", behind, { x: left - 1.5, y: 0, width: right - left + 3, height: SIZE, class: "spoiled" });
        const centre = (left + right) / 2;
        if (centre < free) continue;
        inSvg("text", words, { x: percent(centre / SIZE), y: 0, dy: -5, "text-anchor": anchor(centre / SIZE, EDGE / SIZE), class: "bad" }, word);
        free = centre + (word.length > 3 ? 180 : 120);
      }
    };
    const drawTicks = () => {
      const axis = horizontal.axes[horizontal.by];
      ticks.replaceChildren();
      inSvg("line", ticks, { x1: 0, x2: "100%", y1: "100%", y2: "100%", class: "base" });
      inSvg("text", ticks, { x: -8, y: "100%", dy: 18, "text-anchor": "end", class: "quiet" }, axis.unit);
      for (const [place, label] of axis.ticks)
        inSvg("text", ticks, { x: percent(place), y: "100%", dy: 18, "text-anchor": anchor(place, .02) }, label);
    };

    own.redraw = () => {
      const isBySteps = horizontal.by === "step", isAsMade = isBySteps && own.y === chart.y && !own.smoothing;
      plot.classList.toggle("smoothed", own.smoothing > 0);
      if (isBySteps) [ticks, behind, words].forEach(restore); else { drawTicks(); drawBehind(); }
      groups.forEach((group, index) => isAsMade ? restore(group) : draw(group, chart.series[index]));
    };
    own.turn = () => {
      const isOther = own.y === chart.y;
      own.y = isOther ? chart.other.y : chart.y;
      plot.dataset.axis = isOther ? "other" : "";
      if (isOther) {
        values.replaceChildren();
        for (const [place, label] of chart.other.ticks) {
          const at = `${100 * (1 - place)}%`;
          inSvg("line", values, { x1: 0, x2: "100%", y1: at, y2: at, class: "grid" });
          inSvg("text", values, { x: -8, y: at, dy: "0.35em", "text-anchor": "end" }, label);
        }
      } else restore(values);
      own.redraw();
    };
    horizontal.listeners.push(own.redraw);
    return own;
  });
})();
