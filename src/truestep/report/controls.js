"use strict";
// Smoothing, the other kind of axis, and the points as CSV. Without scripts the page shows the values as they are.
(() => {
  const SIZE = 1000, FEW = 60;
  const made = (name, parent, text) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const inSvg = (name, parent, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    parent.append(element);
    return element;
  };

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

  const charts = [...document.querySelectorAll(".plot")].map((plot) => {
    const own = { plot, chart: JSON.parse(plot.querySelector(".values").textContent), title: plot.parentElement.querySelector("h3").textContent };
    const groups = [...plot.querySelectorAll("svg > svg > g")], grid = plot.querySelector(".values-grid");
    const initial = { y: own.chart.y, grid: [...grid.childNodes], drawn: groups.map((group) => [...group.childNodes]) };
    own.y = initial.y;
    own.smoothing = 0;

    const x = (step) => Math.round(100 * SIZE * (step - own.chart.x[0]) / (own.chart.x[1] - own.chart.x[0])) / 100;
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
    const path = (steps, values, stretch) => "M" + stretch.map((index) => `${x(steps[index])} ${y(values[index])}`).join(" ");
    const draw = (group, series) => {
      group.replaceChildren();
      const { steps, mean, low, high } = series, parts = stretches(mean);
      if (low) {
        const there = (values, stretch) => stretch.map((index) => `${x(steps[index])} ${y(values[index])}`).join(" ");
        const band = parts.map((part) => `M${there(high, part)} ${there(low, [...part].reverse())}Z`).join("");
        inSvg("path", group, { class: "band", d: band });
      }
      inSvg("path", group, { class: "line", d: parts.map((part) => path(steps, mean, part)).join("") });
      const dotted = parts.filter((part) => steps.length <= FEW || part.length === 1).flat();
      if (dotted.length) inSvg("path", group, { class: "dots", d: dotted.map((index) => `M${x(steps[index])} ${y(mean[index])}h.01`).join("") });
      if (own.smoothing) {
        const soft = smoothed(mean, own.smoothing);
        inSvg("path", group, { class: "line soft", d: parts.map((part) => path(steps, soft, part)).join("") });
      }
    };
    own.redraw = () => {
      plot.classList.toggle("smoothed", own.smoothing > 0);
      const isInitial = own.y === initial.y && !own.smoothing;
      groups.forEach((group, index) => isInitial ? group.replaceChildren(...initial.drawn[index]) : draw(group, own.chart.series[index]));
    };
    own.turn = () => {
      const isOther = own.y === initial.y;
      own.y = isOther ? own.chart.other.y : initial.y;
      plot.dataset.axis = isOther ? "other" : "";
      if (isOther) {
        grid.replaceChildren();
        for (const [place, label] of own.chart.other.ticks) {
          const at = `${100 * (1 - place)}%`;
          inSvg("line", grid, { x1: 0, x2: "100%", y1: at, y2: at, class: "grid" });
          inSvg("text", grid, { x: -8, y: at, dy: "0.35em", "text-anchor": "end" }).textContent = label;
        }
      } else grid.replaceChildren(...initial.grid);
      own.redraw();
    };
    if (own.chart.other) {
      const caption = plot.parentElement.querySelector("figcaption");
      caption.querySelector(".scale")?.remove();
      const button = made("button", caption);
      const name = () => {
        button.textContent = own.y[2] ? "log axis" : "linear axis";
        button.setAttribute("aria-label", `${own.title}: ${button.textContent}; press for the other`);
      };
      button.type = "button";
      button.addEventListener("click", () => { own.turn(); name(); });
      name();
    }
    return own;
  });

  const bar = document.getElementById("controls");
  if (!bar || !charts.length) return;
  const label = made("label", bar, "Smoothing "), slider = made("input", label), shown = made("output", label, "off");
  Object.assign(slider, { type: "range", min: 0, max: 0.98, step: 0.02, value: 0 });
  slider.addEventListener("input", () => {
    const weight = Number(slider.value);
    shown.textContent = weight ? weight.toFixed(2) : "off";
    charts.forEach((chart) => { chart.smoothing = weight; chart.redraw(); });
  });

  const quoted = (text) => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const table = () => {
    const rows = [["chart", "curve", "step", "mean", "min", "max", "values"]];
    for (const { chart, title } of charts)
      for (const { name, steps, mean, low, high, count } of chart.series)
        steps.forEach((step, index) => rows.push([title, name, step, mean[index] ?? "NaN", (low ?? mean)[index] ?? "NaN", (high ?? mean)[index] ?? "NaN", count ? count[index] : 1]));
    return rows.map((row) => row.map((cell) => quoted(String(cell))).join(",")).join("\n") + "\n";
  };
  const save = made("button", bar, "Save as CSV");
  save.type = "button";
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
    link.download = `${document.querySelector("h1").textContent}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
