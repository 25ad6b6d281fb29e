"use strict";
// What the reader chooses: the axes, smoothing, and the points as CSV.
(() => {
  for (const own of drawings.filter((each) => each.chart.other)) {
    const caption = own.plot.parentElement.querySelector("figcaption");
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

  const bar = document.getElementById("controls");
  if (!bar || !drawings.length) return;

  // The choice stands in the address too, so that it outlives a reload.
  const kinds = ["step", ...Object.keys(horizontal.axes)], HASH = "#by-";
  if (kinds.length > 1) {
    const choice = made("span", bar, "x axis");
    choice.className = "switch";
    choice.setAttribute("role", "group");
    choice.setAttribute("aria-label", "x axis");
    const choose = (kind) => {
      horizontal.choose(kind);
      buttons.forEach((button) => button.setAttribute("aria-pressed", button.textContent === kind));
    };
    const buttons = kinds.map((kind) => {
      const button = made("button", choice, kind);
      button.type = "button";
      button.addEventListener("click", () => {
        choose(kind);
        try { history.replaceState(null, "", kind === "step" ? "#" : HASH + kind); } catch { /* a page without an address of its own */ }
      });
      return button;
    });
    const asked = location.hash.replace(HASH, "");
    choose(kinds.includes(asked) ? asked : "step");
  }

  const label = made("label", bar, "Smoothing "), slider = made("input", label), shown = made("output", label, "off");
  Object.assign(slider, { type: "range", min: 0, max: 0.98, step: 0.02, value: 0 });
  slider.addEventListener("input", () => {
    const weight = Number(slider.value);
    shown.textContent = weight ? weight.toFixed(2) : "off";
    drawings.forEach((each) => { each.smoothing = weight; each.redraw(); });
  });

  const quoted = (text) => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const table = () => {
    const rows = [["chart", "curve", "step", "mean", "min", "max", "values"]];
    for (const { chart, title } of drawings)
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
