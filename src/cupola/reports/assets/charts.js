"use strict";
// What the page of a report and the board share: charts of lines with bands, points, bars and limits.
const cupola = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const INK = "var(--ink)";
  const charts = new Set();
  let made = 0;

  // ---- small things

  function make(tag, attributes, parent, text) {
    const node = document.createElementNS(SVG, tag);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function element(tag, className, parent, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function short(x) {
    if (x === null || !isFinite(x)) return "-";
    const size = Math.abs(x);
    if (size >= 1e9) return +(x / 1e9).toPrecision(3) + "G";
    if (size >= 1e6) return +(x / 1e6).toPrecision(3) + "M";
    if (size >= 1e4) return +(x / 1e3).toPrecision(3) + "k";
    return String(size >= 1000 ? Math.round(x) : +x.toPrecision(3));
  }

  // Round numbers between two ends, about `count` of them.
  function ticks(low, high, count) {
    const raw = (high - low) / Math.max(1, count);
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.75);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
      found.push(+(k * step).toPrecision(12));
    }
    return found;
  }

  function extent(values) {
    let low = Infinity, high = -Infinity;
    for (const v of values) {
      if (v === null || v === undefined || !isFinite(v)) continue;
      if (v < low) low = v;
      if (v > high) high = v;
    }
    if (low > high) return [0, 1];
    if (low === high) {
      const reach = Math.abs(low) * 0.1 || 1;
      return [low - reach, high + reach];
    }
    return [low, high];
  }

  function symbol(kind, x, y, r) {
    if (kind === "square") return `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`;
    if (kind === "triangle") return `M${x},${y - 1.2 * r}L${x + 1.15 * r},${y + r}H${x - 1.15 * r}Z`;
    if (kind === "diamond") return `M${x},${y - 1.3 * r}L${x + 1.3 * r},${y}L${x},${y + 1.3 * r}L${x - 1.3 * r},${y}Z`;
    return `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`;
  }

  // ---- curves

  // Mean, lowest and highest of the seeds, point by point.
  function summarise(line) {
    const mean = [], low = [], high = [];
    for (let i = 0; i < line.x.length; i++) {
      const known = line.runs.map((run) => run[i]).filter((v) => v !== null && v !== undefined);
      mean.push(known.length ? known.reduce((a, b) => a + b, 0) / known.length : null);
      low.push(known.length ? Math.min(...known) : null);
      high.push(known.length ? Math.max(...known) : null);
    }
    return { mean, low, high };
  }

  // Means over a window around each point, `share` of the curve wide; unknown stays unknown.
  function smoothed(values, share) {
    const reach = Math.round((values.length * share) / 2);
    if (!reach) return values;
    const sums = [0], counts = [0];
    values.forEach((v, i) => {
      const known = v !== null && v !== undefined;
      sums.push(sums[i] + (known ? v : 0));
      counts.push(counts[i] + (known ? 1 : 0));
    });
    return values.map((v, i) => {
      if (v === null || v === undefined) return null;
      const from = Math.max(0, i - reach), to = Math.min(values.length, i + reach + 1);
      return (sums[to] - sums[from]) / (counts[to] - counts[from]);
    });
  }

  // A line of a chart: the mean of the runs, its band, single runs, open circles where one stopped.
  function curve(look, line, { share = 0, singleRuns = false } = {}) {
    if (!line.drawn || line.drawn.share !== share) {
      const runs = line.runs.map((run) => smoothed(run, share));
      line.drawn = { share, runs, ...summarise({ x: line.x, runs }) };
    }
    const { runs, mean, low, high } = line.drawn;
    const ends = [];
    runs.forEach((run, i) => {
      let last = run.length - 1;
      while (last >= 0 && (run[last] === null || run[last] === undefined)) last--;
      if (line.unfinished[i] && last >= 0) ends.push({ x: line.x[last], y: run[last] });
    });
    return {
      label: look.label, colour: look.colour, dash: look.dash, x: line.x, y: mean,
      low: runs.length > 1 ? low : null, high, ends,
      seeds: singleRuns ? runs : [],
      raw: share && runs.length === 1 ? line.runs[0] : null,
    };
  }

  // Why curves begin late, in words; nothing where they do not.
  function lateness(lines) {
    const late = new Set();
    for (const line of lines) {
      const first = line.y.findIndex((v) => v !== null && v !== undefined);
      const span = line.x[line.x.length - 1] - line.x[0];
      if (first > 0 && line.x[first] - line.x[0] > 0.015 * span) late.add(line.x[first]);
    }
    if (!late.size) return "";
    const where = [...late].sort((a, b) => a - b).map(short);
    const at = where.length > 1 ? `${where[0]} to ${where[where.length - 1]}` : where[0];
    return `begins at ${at} steps: no episode had ended before`;
  }

  // The dashed lines of a panel. A limit comes from Quantity.limit in panels.py, as it is.
  function limitLines(axis, items, lookOf) {
    const levels = new Map();
    for (const item of items) {
      if (item.limit === null) continue;
      if (!levels.has(item.limit)) levels.set(item.limit, new Set());
      levels.get(item.limit).add(item.s);
    }
    return [...levels].map(([at, owners]) => ({
      axis, at,
      colour: levels.size > 1 && owners.size === 1 ? lookOf([...owners][0]).colour : INK,
    }));
  }

  // ---- a chart

  class Chart {
    constructor(parent, title, xLabel, yLabel, marks, options) {
      this.marks = marks;
      this.xLabel = xLabel;
      this.yLabel = yLabel;
      this.options = options || {};
      this.zoom = null;
      this.box = element("figure", "", parent);
      element("figcaption", "", this.box, title);
      this.why = element("div", "why", this.box);
      if (this.options.key) {
        const key = element("div", "key", this.box);
        for (const [look, label] of this.options.key) {
          const item = element("span", "", key);
          swatch(look, item);
          item.append(label);
        }
      }
      this.svg = make("svg", { class: "plot", role: "img", tabindex: "0", "aria-label": `${title}: ${yLabel} over ${xLabel}` }, this.box);
      this.tip = element("div", "tip", this.box);
      this.listen();
      charts.add(this);
      this.clip = `clip-${++made}`;
    }

    remove() {
      charts.delete(this);
      this.box.remove();
    }

    draw() {
      const width = Math.max(260, this.box.clientWidth || 400);
      const height = Math.round(Math.min(300, Math.max(210, width * 0.66)));
      const svg = this.svg;
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const shown = this.shown = this.marks();
      this.why.textContent = shown.why || "";
      const left = 54, right = 18, top = 8, bottom = 38;
      this.frame = { left, top, width: width - left - right, height: height - top - bottom };
      const xs = [];
      for (const line of shown.lines) xs.push(line.x[0], line.x[line.x.length - 1]);
      for (const point of shown.points) xs.push(point.x);
      for (const limit of shown.limits) if (limit.axis === "x") xs.push(limit.at);
      let [x0, x1] = extent(xs);
      if (shown.points.length) [x0, x1] = [x0 - 0.06 * (x1 - x0), x1 + 0.06 * (x1 - x0)];
      if (this.zoom) [x0, x1] = this.zoom.x;
      const ys = [];
      const inside = (x) => x >= x0 && x <= x1;
      for (const line of shown.lines) {
        line.x.forEach((x, i) => {
          if (!inside(x)) return;
          ys.push(line.y[i]);
          if (line.low) ys.push(line.low[i], line.high[i]);
        });
      }
      for (const point of shown.points) if (inside(point.x)) ys.push(point.y, ...(point.bar || []));
      for (const limit of shown.limits) if (limit.axis === "y") ys.push(limit.at);
      let [y0, y1] = extent(ys);
      [y0, y1] = [y0 - 0.05 * (y1 - y0), y1 + 0.05 * (y1 - y0)];
      if (this.zoom && this.zoom.y) [y0, y1] = this.zoom.y;
      this.range = { x0, x1, y0, y1 };
      const X = this.X = (x) => left + ((x - x0) / (x1 - x0)) * this.frame.width;
      const Y = this.Y = (y) => top + (1 - (y - y0) / (y1 - y0)) * this.frame.height;

      const ground = make("g", {}, svg);
      for (const y of ticks(y0, y1, 5)) {
        make("line", { x1: left, x2: width - right, y1: Y(y), y2: Y(y), class: "grid" }, ground);
        make("text", { x: left - 6, y: Y(y) + 4, "text-anchor": "end" }, ground, short(y));
      }
      const names = this.options.ticks;
      const wanted = names ? names.map((_, i) => i).filter(inside) : ticks(x0, x1, Math.max(2, width / 90));
      for (const x of wanted) {
        make("line", { x1: X(x), x2: X(x), y1: height - bottom, y2: height - bottom + 4, class: "tick" }, ground);
        make("text", { x: X(x), y: height - bottom + 16, "text-anchor": "middle" }, ground, names ? names[x] : short(x));
      }
      make("rect", { x: left, y: top, width: this.frame.width, height: this.frame.height, class: "edge" }, ground);
      make("text", { x: left + this.frame.width / 2, y: height - 5, "text-anchor": "middle" }, ground, this.xLabel);
      make("text", { transform: `translate(12 ${top + this.frame.height / 2}) rotate(-90)`, "text-anchor": "middle" }, ground, this.yLabel);

      make("rect", { x: left, y: top, width: this.frame.width, height: this.frame.height }, make("clipPath", { id: this.clip }, svg));
      const plot = make("g", { "clip-path": `url(#${this.clip})` }, svg);
      for (const line of shown.lines) if (line.low) make("path", { d: band(line, X, Y), fill: line.colour, opacity: Math.min(0.15, 0.5 / shown.lines.length).toFixed(3) }, plot);
      for (const limit of shown.limits) {
        const across = limit.axis === "y"
          ? { x1: left, x2: width - right, y1: Y(limit.at), y2: Y(limit.at) }
          : { x1: X(limit.at), x2: X(limit.at), y1: top, y2: height - bottom };
        make("line", { ...across, class: "limit", stroke: limit.colour, "stroke-width": 1.2, "stroke-dasharray": "5 4" }, plot);
      }
      for (const line of shown.lines) {
        if (line.raw) make("path", { d: path(line.x, line.raw, X, Y), class: "raw", fill: "none", stroke: line.colour, "stroke-width": 0.8, opacity: 0.3 }, plot);
        for (const seed of line.seeds) make("path", { d: path(line.x, seed, X, Y), fill: "none", stroke: line.colour, "stroke-width": 0.7, opacity: 0.6 }, plot);
        make("path", { d: path(line.x, line.y, X, Y), class: "line", fill: "none", stroke: line.colour, "stroke-width": 1.7, "stroke-dasharray": line.dash }, plot);
      }
      for (const point of shown.points) {
        const x = X(point.x) + (point.shift || 0);
        if (point.bar) make("line", { x1: x, x2: x, y1: Y(point.bar[0]), y2: Y(point.bar[1]), stroke: point.colour, "stroke-width": 1.5 }, plot);
        make("path", { d: symbol(point.marker, x, Y(point.y), point.r), class: "point", fill: point.colour, "stroke-width": point.faint ? 0 : 1, opacity: point.faint ? 0.55 : 1 }, plot);
      }
      // Not cut off at the edge, where they mostly are.
      for (const line of shown.lines) for (const end of line.ends || []) {
        if (inside(end.x) && end.y >= y0 && end.y <= y1) make("circle", { cx: X(end.x), cy: Y(end.y), r: 4, class: "unfinished", stroke: line.colour }, svg);
      }
      for (const limit of shown.limits) {
        // Where a curve begins it is seldom near its limit.
        const high = limit.axis === "y" ? Math.max(top + 11, Y(limit.at) - 4) : top + 11;
        const near = limit.axis === "x" && X(limit.at) > width - right - 70;
        const at = limit.axis === "y" ? left + 5 : X(limit.at) + (near ? -4 : 4);
        make("text", { x: at, y: high, class: "limit-label", fill: limit.colour, "text-anchor": near ? "end" : "start" }, plot, `limit ${short(limit.at)}`);
      }
      this.overlay = make("g", { "pointer-events": "none" }, svg);
    }

    at(event) {
      const rect = this.svg.getBoundingClientRect();
      const scale = this.svg.viewBox.baseVal.width / rect.width;
      return [(event.clientX - rect.left) * scale, (event.clientY - rect.top) * scale];
    }

    toData([px, py]) {
      const { left, top, width, height } = this.frame, { x0, x1, y0, y1 } = this.range;
      return [x0 + ((px - left) / width) * (x1 - x0), y0 + (1 - (py - top) / height) * (y1 - y0)];
    }

    listen() {
      let from = null;
      this.svg.addEventListener("pointerdown", (event) => {
        if (event.button === 0) from = this.at(event);
      });
      this.svg.addEventListener("pointermove", (event) => {
        const to = this.at(event);
        if (from && event.buttons && Math.hypot(to[0] - from[0], to[1] - from[1]) > 6) this.select(from, to);
        else this.hover(to);
      });
      const finish = (event) => {
        if (!from) return;
        const to = this.at(event), start = from;
        from = null;
        if (Math.abs(to[0] - start[0]) > 8) this.zoomTo(this.toData(start), this.toData(to));
        else this.hover(to);
      };
      this.svg.addEventListener("pointerup", finish);
      this.svg.addEventListener("pointercancel", () => { from = null; this.leave(); });
      this.svg.addEventListener("pointerleave", () => { from = null; this.leave(); });
      this.svg.addEventListener("dblclick", () => this.unzoom());
      this.svg.addEventListener("keydown", (event) => {
        const { x0, x1 } = this.range, span = x1 - x0;
        const moves = { "+": [0.15, -0.15], "=": [0.15, -0.15], "-": [-0.2, 0.2], ArrowLeft: [-0.1, -0.1], ArrowRight: [0.1, 0.1] };
        if (event.key in moves) {
          const [a, b] = moves[event.key];
          this.zoom = { x: [x0 + a * span, x1 + b * span], y: null };
          this.draw();
          event.preventDefault();
        } else if (event.key === "Escape" || event.key === "0") this.unzoom();
      });
    }

    select([ax, ay], [bx, by]) {
      const { left, top, width, height } = this.frame;
      this.leave();
      const y = this.options.plane ? Math.min(ay, by) : top;
      const tall = this.options.plane ? Math.abs(by - ay) : height;
      const x = Math.max(left, Math.min(ax, bx));
      make("rect", { x, y, width: Math.min(left + width, Math.max(ax, bx)) - x, height: tall, class: "selection" }, this.overlay);
    }

    zoomTo([ax, ay], [bx, by]) {
      const { x0, x1 } = this.range;
      const low = Math.max(x0, Math.min(ax, bx)), high = Math.min(x1, Math.max(ax, bx));
      const both = this.options.plane && Math.abs(by - ay) > 0;
      if (high > low) this.zoom = { x: [low, high], y: both ? [Math.min(ay, by), Math.max(ay, by)] : null };
      this.draw();
    }

    unzoom() {
      this.zoom = null;
      this.draw();
    }

    leave() {
      this.tip.style.display = "none";
      if (this.overlay) this.overlay.replaceChildren();
    }

    hover([px, py]) {
      this.leave();
      const { left, top, width, height } = this.frame;
      if (px < left - 4 || px > left + width + 4 || py < top || py > top + height) return;
      if (this.shown.points.length) this.hoverPoint(px, py);
      else if (this.shown.lines.length) this.hoverLines(px);
    }

    hoverPoint(px, py) {
      let best = null, nearest = 30;
      for (const point of this.shown.points) {
        const away = Math.hypot(this.X(point.x) + (point.shift || 0) - px, this.Y(point.y) - py);
        if (away < nearest) [best, nearest] = [point, away];
      }
      if (!best) return;
      make("path", { d: symbol(best.marker, this.X(best.x) + (best.shift || 0), this.Y(best.y), best.r + 3), class: "ring" }, this.overlay);
      const spread = best.bar ? ` [${short(best.bar[0])}, ${short(best.bar[1])}]` : "";
      const rows = [[best.colour, best.label, ""]];
      if (this.options.plane) rows.push([null, this.xLabel, short(best.x)]);
      rows.push([null, this.yLabel, short(best.y) + spread]);
      this.show(rows, this.X(best.x), null);
    }

    hoverLines(px) {
      const x = this.toData([px, 0])[0];
      const rows = [];
      let at = null;
      for (const line of this.shown.lines) {
        const i = nearestIndex(line.x, x);
        if (at === null) at = line.x[i];
        if (line.y[i] === null || line.y[i] === undefined) continue;
        const spread = line.low ? ` [${short(line.low[i])}, ${short(line.high[i])}]` : "";
        rows.push([line.colour, line.label, short(line.y[i]) + spread]);
        make("circle", { cx: this.X(line.x[i]), cy: this.Y(line.y[i]), r: 3, class: "dot", fill: line.colour }, this.overlay);
      }
      const { top, height } = this.frame;
      make("line", { x1: this.X(at), x2: this.X(at), y1: top, y2: top + height, class: "cursor" }, this.overlay);
      this.show(rows, this.X(at), `${this.xLabel} ${short(at)}`);
    }

    show(rows, px, heading) {
      this.tip.replaceChildren();
      if (heading) element("b", "", element("div", "", this.tip), heading);
      for (const [colour, label, value] of rows.slice(0, 14)) {
        const row = element("div", "", this.tip);
        if (colour) element("i", "", row).style.background = colour;
        row.append(value === "" ? label : `${label}: ${value}`);
      }
      if (rows.length > 14) element("div", "", this.tip, `and ${rows.length - 14} more`);
      this.tip.style.display = "block";
      const scale = this.svg.getBoundingClientRect().width / this.svg.viewBox.baseVal.width;
      const room = this.box.clientWidth - this.tip.offsetWidth - 4;
      const beside = px * scale + 12 > room ? px * scale - this.tip.offsetWidth - 12 : px * scale + 12;
      this.tip.style.left = `${Math.max(0, Math.min(room, beside))}px`;
      this.tip.style.top = `${this.svg.offsetTop + 12}px`;
    }
  }

  function nearestIndex(xs, x) {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle;
      else high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  }

  function path(xs, ys, X, Y) {
    let text = "", pen = "M";
    for (let i = 0; i < ys.length; i++) {
      if (ys[i] === null || ys[i] === undefined) { pen = "M"; continue; }
      text += `${pen}${X(xs[i]).toFixed(1)},${Y(ys[i]).toFixed(1)}`;
      pen = "L";
    }
    return text;
  }

  function band(line, X, Y) {
    const known = line.x.map((_, i) => i).filter((i) => line.low[i] !== null);
    if (!known.length) return "";
    const there = known.map((i) => `${X(line.x[i]).toFixed(1)},${Y(line.high[i]).toFixed(1)}`);
    const back = known.reverse().map((i) => `${X(line.x[i]).toFixed(1)},${Y(line.low[i]).toFixed(1)}`);
    return `M${there.join("L")}L${back.join("L")}Z`;
  }

  // ---- around the charts

  function drawAll() {
    for (const chart of charts) chart.draw();
  }

  function unzoomAll() {
    for (const chart of charts) chart.zoom = null;
    drawAll();
  }

  // Black is for a white page: on a dark one it is the colour of the text.
  function styled(look) {
    return look.colour === "#000000" ? { ...look, colour: INK } : look;
  }

  function swatch(look, parent) {
    const svg = make("svg", { width: 26, height: 12, "aria-hidden": "true" }, parent);
    make("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: look.colour, "stroke-width": 2.5, "stroke-dasharray": look.dash }, svg);
    make("path", { d: symbol(look.marker, 13, 6, 4), fill: look.colour }, svg);
  }

  // A slider from no smoothing to a window of 20 % of the curve.
  function smoothingSlider(changed) {
    const slider = document.getElementById("smoothing"), told = document.getElementById("smoothing-told");
    slider.addEventListener("input", () => {
      told.textContent = slider.value === "0" ? "off" : `${slider.value} %`;
      changed(slider.value / 100);
    });
  }

  let drawnWidth = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== drawnWidth) {
      drawnWidth = document.body.clientWidth;
      drawAll();
    }
  }).observe(document.body);

  return { Chart, INK, curve, drawAll, element, lateness, limitLines, short, smoothingSlider, styled, swatch, unzoomAll };
})();
