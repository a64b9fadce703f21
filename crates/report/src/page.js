"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const LEFT = 64, GAP = 2, PLOT = 170, NEAR = 8, THIN = 6, FOLD = 14;
  const format = (n) => n.toLocaleString("en-US");
  const plural = (n, name) => (n === 1 ? name : name + "s");
  const counted = (n, name) => format(n) + " " + plural(n, name);
  // As the tables show sizes.
  const size = (bytes) => {
    for (const [unit, name] of [[2 ** 50, "P"], [2 ** 40, "T"], [2 ** 30, "G"], [2 ** 20, "M"], [2 ** 10, "K"]]) {
      const tenths = Math.floor((bytes * 10) / unit);
      if (bytes >= unit) return (tenths % 10 === 0 || tenths >= 1000 ? Math.floor(tenths / 10) : tenths / 10) + name;
    }
    return String(bytes);
  };

  let css;
  const colour = (name) => css.getPropertyValue("--" + name).trim();
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  let ramp = [];
  function readTheme() {
    css = getComputedStyle(document.documentElement);
    const stops = [0, 1, 2].map((n) => channels(colour("time-" + n)));
    ramp = Array.from({ length: 64 }, (_, at) => {
      const x = (at / 63) * 2, low = Math.min(1, Math.floor(x)), part = x - low;
      return "rgb(" + [0, 1, 2].map((c) => Math.round(stops[low][c] * (1 - part) + stops[low + 1][c] * part)) + ")";
    });
  }

  const disks = page.disks.map((disk, at) => ({
    ...disk, at, map: byId("map-" + at), plot: byId("plot-" + at), counts: byId("counts-" + at),
    letters: decode(disk.cells), shown: disk.reads.start.length,
  }));
  const mostRequests = Math.max(1, ...disks.map((disk) => disk.reads.requests.at(-1) || 0));
  // The part of each disk that is read, from and to.
  for (const disk of disks) {
    const { start, len } = disk.reads;
    const [low, high] = start.reduce(([low, high], from, at) =>
      [Math.min(low, from - disk.first), Math.max(high, from - disk.first + len[at])], [Infinity, 1]);
    [disk.low, disk.high] = [Math.min(low, high), high];
  }

  // Rows that nothing is read from, in any disk, take less room, and those without
  // files are folded into one. All disks have rows of the same heights.
  const rows = (() => {
    const count = Math.max(...disks.map((disk) => disk.labels.length));
    const read = new Array(count).fill(disks.every((disk) => !disk.plot));
    for (const disk of disks)
      for (let at = 0; at < disk.letters.length; at++)
        if (/[A-Z!]/.test(disk.letters[at])) read[Math.floor(at / disk.columns)] = true;
    const tall = Math.max(12, Math.min(40, Math.floor(320 / Math.max(1, read.filter(Boolean).length))));
    const tops = [], heights = read.map((is) => (is || count <= 8 ? tall : THIN)), folds = new Array(count);
    for (const fold of page.folds)
      for (let row = fold.from; row < fold.to; row++) [heights[row], folds[row]] = [row === fold.from ? FOLD : 0, fold];
    heights.reduce((top, high, row) => { tops[row] = top; return top + high; }, 0);
    return { tops, heights, folds };
  })();

  function decode(text) {
    let letters = "";
    for (const [, count, letter] of text.matchAll(/(\d*)(\D)/g)) letters += letter.repeat(+count || 1);
    return letters;
  }

  // How many requests have been made once `event` events have run.
  function until(disk, event) {
    let low = 0, high = disk.reads.event.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (disk.reads.event[middle] < event) low = middle + 1; else high = middle;
    }
    return low;
  }

  const settings = { purpose: false, path: true };
  function lineColour(disk, at) {
    if (settings.purpose) return colour(disk.purposes[disk.reads.purpose[at]]);
    return ramp[Math.min(63, Math.floor((disk.reads.event[at] / Math.max(1, page.events)) * 64))];
  }

  function prepare(canvas, height) {
    const width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    return [context, width];
  }

  // Where a block lies on the map, and how tall its row is.
  function place(disk, block, width) {
    const off = Math.max(0, Math.min(block - disk.first, disk.blocks - 1)), row = Math.floor(off / disk.row_blocks);
    const x = LEFT + ((off % disk.row_blocks) / disk.row_blocks) * (width - LEFT), tall = rows.heights[row] - GAP;
    return [x, rows.tops[row] + tall / 2, tall];
  }

  function drawMap(disk) {
    const last = disk.labels.length - 1;
    const [context, width] = prepare(disk.map, rows.tops[last] + rows.heights[last] + 4);
    const cell = (width - LEFT) / disk.columns;
    context.fillStyle = colour("faint");
    disk.labels.reduce((free, label, row) => {
      const fold = rows.folds[row];
      if (fold && fold.from !== row) return free;
      if (fold) label = fold.groups[disk.at];
      const middle = rows.tops[row] + (rows.heights[row] - GAP) / 2;
      if (middle < free) return free;
      context.fillText(label, 0, middle);
      if (fold) context.fillText("no files", LEFT + 6, middle);
      return middle + 12;
    }, 0);
    for (const fold of page.folds) {
      if (fold.from > last) continue;
      context.strokeStyle = colour("line");
      context.setLineDash([3, 3]);
      context.strokeRect(LEFT + 0.5, rows.tops[fold.from] + 0.5, width - LEFT - 1, FOLD - GAP - 1);
      context.setLineDash([]);
    }
    for (let at = 0; at < disk.letters.length;) {
      const row = Math.floor(at / disk.columns), letter = disk.letters[at];
      if (rows.folds[row]) { at = rows.folds[row].to * disk.columns; continue; }
      let end = at + 1;
      while (end % disk.columns !== 0 && disk.letters[end] === letter) end++;
      if (letter !== " ") {
        const hot = letter !== letter.toLowerCase();
        const name = letter === "." || letter === "!" ? "class-_" : (hot ? "hot-" : "class-") + letter.toLowerCase();
        context.fillStyle = colour(name);
        context.fillRect(LEFT + (at % disk.columns) * cell, rows.tops[row], (end - at) * cell, rows.heights[row] - GAP);
      }
      at = end;
    }
    if (settings.path) drawPath(disk, context, width);
  }

  function drawPath(disk, context, width) {
    const { start, len } = disk.reads;
    // Many lines on top of each other must not become one blot.
    context.globalAlpha = Math.max(0.12, Math.min(0.75, 220 / Math.max(1, disk.shown)));
    context.lineWidth = 1;
    for (let at = 1; at < disk.shown; at++) {
      const from = start[at - 1] + len[at - 1];
      if (from === start[at]) continue;
      const [x0, y0, tall] = place(disk, from - 1, width), [x1, y1] = place(disk, start[at], width);
      const far = Math.hypot(x1 - x0, y1 - y0);
      context.strokeStyle = lineColour(disk, at);
      context.beginPath();
      context.moveTo(x0, y0);
      const bow = y0 === y1 ? Math.min(tall * 0.9, far / 4) : far / 12;
      context.quadraticCurveTo((x0 + x1) / 2 + (y0 === y1 ? 0 : bow), (y0 + y1) / 2 - bow, x1, y1);
      context.stroke();
    }
    context.globalAlpha = 1;
    for (let at = 0; at < disk.shown; at++) {
      const [x, y, tall] = place(disk, start[at], width);
      const wide = Math.max(1.5, (len[at] / disk.row_blocks) * (width - LEFT));
      context.fillStyle = lineColour(disk, at);
      context.fillRect(x, y - tall / 5, Math.min(wide, width - x), tall / 2.5);
    }
    if (disk.shown > 0 && disk.shown < start.length) {
      const [x, y] = place(disk, start[disk.shown - 1], width);
      context.strokeStyle = colour("text");
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 6, 0, 7);
      context.stroke();
    }
  }

  const plotX = (disk, at, width) => LEFT + (disk.reads.requests[at] / mostRequests) * (width - LEFT - 4);
  const plotY = (disk, block) => 2 + ((block - disk.first - disk.low) / Math.max(1, disk.high - disk.low)) * (PLOT - 24);

  function drawPlot(disk) {
    if (!disk.plot) return;
    const [context, width] = prepare(disk.plot, PLOT);
    const bottom = PLOT - 18;
    context.strokeStyle = colour("line");
    context.strokeRect(LEFT - 0.5, 0.5, width - LEFT, bottom);
    context.fillStyle = colour("faint");
    context.fillText("at " + size(disk.low * disk.block_size), 0, 8);
    context.fillText("at " + size(disk.high * disk.block_size), 0, bottom - 6);
    context.textAlign = "right";
    context.fillText(counted(mostRequests, "request"), width - 2, PLOT - 8);
    context.textAlign = "left";
    context.fillText("1", LEFT, PLOT - 8);
    for (let at = 0; at < disk.shown; at++) {
      context.fillStyle = lineColour(disk, at);
      const tall = Math.max(2, (disk.reads.len[at] / Math.max(1, disk.high - disk.low)) * (PLOT - 24));
      context.fillRect(plotX(disk, at, width) - 1, plotY(disk, disk.reads.start[at]), 2, tall);
    }
    const total = disk.reads.requests.at(-1) || 0;
    if (total < mostRequests) {
      const x = LEFT + (total / mostRequests) * (width - LEFT - 4);
      context.fillStyle = colour("faint");
      context.fillRect(x, 1, 1, bottom - 1);
      const label = "done after " + format(total), room = context.measureText(label).width;
      context.fillText(label, x + room + 8 < width ? x + 5 : x - room - 5, 12);
    }
  }

  function showCounts(disk) {
    if (!disk.plot) return;
    const last = disk.shown - 1, value = (column) => (last < 0 ? 0 : disk.reads[column][last]);
    disk.counts.replaceChildren();
    const named = (column, name) => [format(value(column)), " " + plural(value(column), name) + ", "];
    const parts = [named("requests", "request"), named("seeks", "seek"),
      [size(value("read") * disk.block_size), " read"]];
    for (const { device, us } of disk.reads.times)
      parts.push([((last < 0 ? 0 : us[last]) / 1e6).toFixed(2), " s on " + device]);
    parts.forEach(([number, unit], at) => {
      const strong = document.createElement("b");
      strong.textContent = number;
      disk.counts.append(at > 2 ? ", " : "", strong, unit);
    });
  }

  function draw() {
    const slider = byId("time");
    const event = slider ? Math.round((slider.value / 1000) * page.events) : 0;
    if (slider) byId("event").textContent = "event " + format(event) + " of " + format(page.events);
    for (const disk of disks) {
      disk.shown = slider && slider.value < 1000 ? until(disk, event) : disk.reads.start.length;
      drawMap(disk);
      drawPlot(disk);
      showCounts(disk);
    }
  }

  let waiting = false;
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }

  // The request drawn nearest to the pointer, if one is near.
  function nearest(disk, position, x, y, tall) {
    let best = -1, least = NEAR * NEAR;
    for (let at = 0; at < disk.shown; at++) {
      const [px, py, wide] = position(at);
      const dx = x < px ? px - x : Math.max(0, x - px - wide), dy = Math.max(0, Math.abs(y - py) - tall);
      if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = at; }
    }
    return best;
  }

  function describe(disk, at) {
    const reads = disk.reads, bytes = (blocks) => size(blocks * disk.block_size);
    return disk.paths[reads.path[at]] + "\nrequest " + format(reads.requests[at]) + ": " +
      disk.purposes[reads.purpose[at]] + ", for " + disk.ops[reads.op[at]] + " (event " + format(reads.event[at]) +
      ")\nblock " + format(reads.start[at]) + ", " + counted(reads.len[at], "block") + ", " + bytes(reads.len[at]);
  }

  const CLASSES = { m: "metadata", d: "directories", f: "file data", i: "internal", ".": "free" };
  function describeCell(disk, x, y, width) {
    const row = rows.tops.findLastIndex((top) => top <= y);
    const fold = rows.folds[row];
    if (fold) return fold.from < disk.labels.length ? "groups " + fold.groups[disk.at] + ": no files" : "";
    const column = Math.floor(((x - LEFT) / (width - LEFT)) * disk.columns);
    const letter = column >= 0 && column < disk.columns ? disk.letters[row * disk.columns + column] : undefined;
    if (!letter || letter === " ") return "";
    const block = disk.first + row * disk.row_blocks + Math.ceil((column * disk.row_blocks) / disk.columns);
    return "group " + disk.labels[row] + ", from block " + format(block) + ": " + (CLASSES[letter.toLowerCase()] || "");
  }

  const tip = byId("tip");
  function showTip(text, x, y) {
    tip.hidden = !text;
    tip.textContent = text;
    const right = x + 16 + tip.offsetWidth > innerWidth;
    tip.style.left = Math.max(4, right ? x - 16 - tip.offsetWidth : x + 16) + "px";
    tip.style.top = Math.min(y + 16, innerHeight - tip.offsetHeight - 4) + "px";
  }

  function hover(canvas, find) {
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      showTip(find(event.clientX - box.left, event.clientY - box.top, box.width), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  // With the focus on a picture, arrow keys go through `count()` things, of which `tell(at,
  // width)` has the text and the place.
  function walk(canvas, count, tell) {
    let at = -1;
    canvas.addEventListener("keydown", (event) => {
      const all = count(), page = Math.max(2, Math.ceil(all / 20));
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -all, End: all };
      if (event.key === "Escape") { tip.hidden = true; return; }
      if (!(event.key in steps) || all === 0) return;
      event.preventDefault();
      at = Math.max(0, Math.min(all - 1, at + steps[event.key]));
      const [text, x, y] = tell(at, canvas.clientWidth), box = canvas.getBoundingClientRect();
      showTip(text, box.left + x, box.top + y);
    });
    canvas.addEventListener("blur", () => { tip.hidden = true; });
  }

  // The first cell of each run of equal ones on the map.
  const runs = (disk) => [...disk.letters].flatMap((letter, at) =>
    letter !== " " && (at % disk.columns === 0 || disk.letters[at - 1] !== letter) && !rows.folds[Math.floor(at / disk.columns)] ? [at] : []);

  for (const disk of disks) {
    const reads = disk.reads;
    hover(disk.map, (x, y, width) => {
      const position = (at) => [...place(disk, reads.start[at], width), (reads.len[at] / disk.row_blocks) * (width - LEFT)];
      const at = settings.path ? nearest(disk, position, x, y, 5) : -1;
      return at < 0 ? describeCell(disk, x, y, width) : describe(disk, at);
    });
    const cells = disk.plot ? [] : runs(disk);
    walk(disk.map, () => (disk.plot ? disk.shown : cells.length), (at, width) => {
      if (disk.plot) return [describe(disk, at), ...place(disk, reads.start[at], width)];
      const row = Math.floor(cells[at] / disk.columns);
      const x = LEFT + ((cells[at] % disk.columns) + 0.5) * (width - LEFT) / disk.columns, y = rows.tops[row] + 1;
      return [describeCell(disk, x, y, width), x, y];
    });
    if (disk.plot) walk(disk.plot, () => disk.shown, (at, width) =>
      [describe(disk, at), plotX(disk, at, width), plotY(disk, reads.start[at])]);
    if (disk.plot) hover(disk.plot, (x, y, width) => {
      const at = nearest(disk, (at) => [plotX(disk, at, width), plotY(disk, reads.start[at]), 1], x, y, 1);
      return at < 0 ? "" : describe(disk, at);
    });
  }

  function showColours() {
    const legend = byId("colours");
    if (!legend) return;
    legend.replaceChildren();
    const entry = (text, set) => {
      const span = document.createElement("span"), box = document.createElement("i");
      set(box);
      span.append(box, text);
      legend.append(span);
    };
    if (!settings.purpose) return entry("read path, from the first event to the last", (box) => { box.className = "gradient"; });
    const names = new Set(disks.flatMap((disk) => disk.purposes));
    for (const name of names) entry("read of " + name, (box) => { box.style.background = "var(--" + name + ")"; });
  }

  const slider = byId("time");
  if (slider) {
    slider.addEventListener("input", redraw);
    byId("path").addEventListener("change", (event) => { settings.path = event.target.checked; redraw(); });
    byId("colour").addEventListener("change", (event) => {
      settings.purpose = event.target.value === "purpose";
      showColours();
      redraw();
    });
    let playing = null;
    const stop = () => { cancelAnimationFrame(playing); playing = null; byId("play").textContent = "Play"; };
    byId("play").addEventListener("click", () => {
      if (playing !== null) return stop();
      byId("play").textContent = "Stop";
      const from = +slider.value >= 1000 ? 0 : +slider.value, begun = performance.now();
      const tick = (now) => {
        slider.value = Math.min(1000, from + (now - begun) / 8);
        draw();
        if (+slider.value >= 1000) stop(); else playing = requestAnimationFrame(tick);
      };
      playing = requestAnimationFrame(tick);
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); redraw(); });
  addEventListener("resize", redraw);
  readTheme();
  showColours();
  draw();
})();
