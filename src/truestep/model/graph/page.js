"use strict";
// Chooses a depth, and zooms and drags a drawing. Without it the page shows the depth that fits best.
document.querySelectorAll(".graphs").forEach((section) => {
  const views = [...section.querySelectorAll(".view")];
  const depths = [...section.querySelectorAll("[data-depth]")].filter((each) => each.tagName === "BUTTON");
  const current = () => views.find((view) => !view.hidden);
  const centre = () => { current().scrollLeft = (current().scrollWidth - current().clientWidth) / 2; };
  const size = (view) => view.querySelector("svg").viewBox.baseVal;
  const zoomOf = (view) => Number(view.dataset.scale || 1);
  const zoom = (view, scale, x, y) => {
    const before = zoomOf(view), svg = view.querySelector("svg");
    const after = Math.min(4, Math.max(0.1, scale));
    const left = (view.scrollLeft + x) / before, top = (view.scrollTop + y) / before;
    view.dataset.scale = after;
    svg.style.width = `${size(view).width * after}px`;
    svg.style.height = `${size(view).height * after}px`;
    view.scrollLeft = left * after - x;
    view.scrollTop = top * after - y;
  };
  const fit = (view) => {
    const scale = Math.min(1, view.clientWidth / size(view).width, (0.82 * innerHeight) / size(view).height);
    zoom(view, scale, 0, 0);
  };
  depths.forEach((button) => button.addEventListener("click", () => {
    views.forEach((view) => { view.hidden = view.dataset.depth !== button.dataset.depth; });
    depths.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    centre();
  }));
  centre();
  section.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    const view = current(), factor = Number(button.dataset.zoom);
    if (factor) zoom(view, zoomOf(view) * factor, view.clientWidth / 2, view.clientHeight / 2);
    else fit(view);
  }));
  views.forEach((view) => {
    view.tabIndex = 0;
    view.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = view.getBoundingClientRect();
      zoom(view, zoomOf(view) * Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    view.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button) return;
      view.setPointerCapture(event.pointerId);
      view.classList.add("held");
    });
    view.addEventListener("pointermove", (event) => {
      if (view.classList.contains("held")) view.scrollBy(-event.movementX, -event.movementY);
    });
    ["pointerup", "pointercancel"].forEach((name) => view.addEventListener(name, () => view.classList.remove("held")));
  });
});
