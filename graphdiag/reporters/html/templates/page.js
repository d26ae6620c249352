"use strict";

// Draws the pictures, gives them the page's colours, and makes the copy buttons work.
(() => {
  // Properties of Bokeh's axes, grids, legends and titles, and the page's colour that each takes.
  const COLORS = {
    axis_label_text_color: "--ink",
    axis_line_color: "--muted",
    grid_line_color: "--line",
    label_text_color: "--ink",
    major_label_text_color: "--ink",
    major_tick_line_color: "--muted",
    minor_tick_line_color: "--line",
  };
  const NARROW = 480; // CSS pixels of the window
  const LONG = 16; // characters of a legend's label
  let views = [];

  function color() {
    const style = getComputedStyle(document.documentElement);
    for (const view of views) {
      for (const model of view.model.references()) {
        for (const [property, name] of Object.entries(COLORS)) {
          if (property in model.properties) {
            model[property] = style.getPropertyValue(name).trim();
          }
        }
      }
    }
  }

  // A legend that is wider than a phone would make the whole page scroll sideways, and tools that
  // show when a mouse is over them would be empty space.
  function narrow(item) {
    for (const { attributes } of named(item, "Legend")) {
      const longest = Math.max(...attributes.items.map((one) => one.attributes.label.value.length));
      attributes.ncols = Math.min(attributes.ncols, longest > LONG ? 1 : 2);
    }
    for (const { attributes } of named(item, "Plot")) {
      attributes.toolbar_location = null;
    }
    return item;
  }

  function named(value, name) {
    if (value === null || typeof value !== "object") {
      return [];
    }
    const found = Object.values(value).flatMap((part) => named(part, name));
    return value.name === name ? [value, ...found] : found;
  }

  async function draw() {
    const items = [...document.querySelectorAll("script.item")];
    const drawn = items.map((item) => {
      const one = JSON.parse(item.textContent);
      const fits = innerWidth > NARROW ? one : narrow(one);
      return Bokeh.embed.embed_item(fits, item.dataset.target);
    });
    views = (await Promise.all(drawn)).flatMap((manager) => [...manager])
      .filter((view) => "canvas_view" in view);
    color();
    document.documentElement.dataset.drawn = String(views.length);
  }

  // A printer takes what is painted when this returns; Bokeh alone would paint later. A picture of a
  // new size would come out empty: it keeps the screen's, and the browser fits the page to the paper.
  function print(begins) {
    document.documentElement.classList.toggle("on-paper", begins);
    color();
    for (const view of views) {
      view.paint();
    }
  }

  async function copy(button) {
    const code = button.closest(".flag").querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      if (!document.execCommand("copy")) {
        button.textContent = "Press Ctrl+C";
        return;
      }
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", () => copy(button));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", color);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  draw();
})();
