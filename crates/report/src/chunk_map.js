"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const names = new Map(page.names), tip = document.getElementById("tip");
  const LEFT = 64, GAP = 1, LEAST = 6, MOST = 16;
  const size = (bytes) => {
    for (const [unit, name] of [[2 ** 40, "T"], [2 ** 30, "G"], [2 ** 20, "M"], [2 ** 10, "K"]])
      if (bytes >= unit) return Math.floor((bytes * 10) / unit) / 10 + name;
    return String(bytes);
  };
  const decode = (text) => {
    let letters = "";
    for (const [, count, letter] of text.matchAll(/(\d*)(\D)/g)) letters += letter.repeat(+count || 1);
    return letters;
  };
  const maps = page.maps.map((map, at) =>
    ({ ...map, canvas: document.getElementById("map-" + at), letters: decode(map.cells), chosen: -1 }));

  function draw(map) {
    const { canvas, letters } = map, scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
    const css = getComputedStyle(document.documentElement);
    // Cells are as large as a screen allows; a row has a round number of them.
    const room = Math.max(LEAST, width - LEFT);
    map.cell = Math.max(LEAST, Math.min(MOST, Math.floor(Math.sqrt((room * 400) / Math.max(1, letters.length)))));
    map.columns = Math.max(1, 2 ** Math.floor(Math.log2(room / map.cell)));
    map.cell = Math.min(MOST, room / map.columns);
    const rows = Math.ceil(letters.length / map.columns), high = Math.max(1, rows) * map.cell + 4;
    canvas.style.height = high + "px";
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(high * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.clearRect(0, 0, width, high);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = css.getPropertyValue("--faint").trim();
    for (let row = 0, free = 0; row < rows; row++) {
      const middle = row * map.cell + map.cell / 2;
      if (middle < free) continue;
      context.fillText(size(row * map.columns * map.each * map.size), 0, middle);
      free = middle + 14;
    }
    for (let at = 0; at < letters.length; at++) {
      const x = LEFT + (at % map.columns) * map.cell, y = Math.floor(at / map.columns) * map.cell;
      const colour = css.getPropertyValue("--chunk-" + letters[at]).trim();
      if (colour !== "transparent") {
        context.fillStyle = colour;
        context.fillRect(x, y, map.cell - GAP, map.cell - GAP);
      }
      if (at === map.chosen) {
        context.strokeStyle = css.getPropertyValue("--text").trim();
        context.lineWidth = 2;
        context.strokeRect(x, y, map.cell - GAP, map.cell - GAP);
      }
    }
  }

  function tell(map, at, x, y) {
    const first = at * map.each, last = Math.min(first + map.each, map.chunks) - 1;
    const which = first === last ? "chunk " + first : "chunks " + first + " to " + last;
    tip.textContent = which + ", " + size(first * map.size) + " to " + size((last + 1) * map.size) + ": " +
      names.get(map.letters[at]);
    tip.hidden = false;
    tip.style.left = Math.min(x + 12, document.documentElement.clientWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = y + 14 + "px";
  }

  function choose(map, at) {
    map.chosen = Math.max(0, Math.min(at, map.letters.length - 1));
    draw(map);
    const box = map.canvas.getBoundingClientRect();
    const x = LEFT + (map.chosen % map.columns) * map.cell, y = Math.floor(map.chosen / map.columns) * map.cell;
    tell(map, map.chosen, box.left + x, box.top + y);
  }

  for (const map of maps) {
    map.canvas.addEventListener("pointermove", (event) => {
      const box = map.canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left - LEFT) / map.cell);
      const at = Math.floor((event.clientY - box.top) / map.cell) * map.columns + column;
      if (column < 0 || column >= map.columns || at < 0 || at >= map.letters.length) tip.hidden = true;
      else tell(map, at, event.clientX, event.clientY);
    });
    map.canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    map.canvas.addEventListener("blur", () => { tip.hidden = true; map.chosen = -1; draw(map); });
    map.canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: map.columns, ArrowUp: -map.columns };
      const ends = { Home: 0, End: map.letters.length - 1 };
      if (event.key === "Escape") { tip.hidden = true; map.chosen = -1; draw(map); return; }
      if (!(event.key in steps) && !(event.key in ends)) return;
      event.preventDefault();
      choose(map, event.key in ends ? ends[event.key] : map.chosen + (map.chosen < 0 ? 1 : steps[event.key]));
    });
  }
  const all = () => maps.forEach(draw);
  window.addEventListener("resize", all);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  all();
})();
