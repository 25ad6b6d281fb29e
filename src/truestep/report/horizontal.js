"use strict";
// The horizontal axis that all charts share: steps, epochs or time. Each run has its own epochs and its own time.
const horizontal = (() => {
  const element = document.getElementById("timeline");
  const { axes, runs } = element ? JSON.parse(element.textContent) : { axes: {}, runs: [] };
  const charts = [...document.querySelectorAll(".plot")].map((plot) => ({
    plot, chart: JSON.parse(plot.querySelector(".values").textContent),
  }));

  // the value at a step: straight lines through the known ones, and beyond their ends the last of them
  const at = ([steps, values], step) => {
    let low = 0, high = steps.length - 1;
    if (step <= steps[low]) return values[low];
    if (step >= steps[high]) return values[high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] <= step) low = middle; else high = middle;
    }
    return values[low] + (step - steps[low]) * (values[high] - values[low]) / (steps[high] - steps[low]);
  };

  const own = { axes, charts, at, runs, by: "step", listeners: [] };
  own.place = (step, run) => own.by === "step" ? step : at(runs[run || 0][own.by], step);
  own.choose = (by) => {
    own.by = by;
    for (const { chart } of charts) {
      chart.ends = by === "step" ? chart.x : axes[by].x;
      for (const series of chart.series) series.at = series.steps.map((step) => own.place(step, series.run));
    }
    own.listeners.forEach((tell) => tell());
  };
  own.choose("step");
  return own;
})();
