"use strict";
(() => {
  const { Chart, INK, curve, drawAll, element, lateness, limitLines, short, smoothingSlider, styled, swatch, unzoomAll } = cupola;
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const SERIES = DATA.series.map(styled), PALETTE = DATA.palette.map(styled);
  const hidden = new Set();
  let singleRuns = false, share = 0;

  // ---- what a chart shows of the visible series

  const visible = (item) => !hidden.has(item.s);

  function curveMarks(panel) {
    const mine = panel.lines.filter(visible);
    const lines = mine.map((line) => curve(SERIES[line.s], line, { share, singleRuns }));
    return { lines, points: [], limits: limitLines("y", mine, (s) => SERIES[s]), why: panel.evaluated ? "" : lateness(lines) };
  }

  function planeMarks(plane) {
    const points = [];
    for (const point of plane.points.filter(visible)) {
      const look = SERIES[point.s];
      const average = (k) => point.seeds.reduce((sum, seed) => sum + seed[k], 0) / point.seeds.length;
      for (const [seed, x, y] of point.seeds) {
        points.push({ x, y, r: 3, colour: look.colour, marker: look.marker, faint: true, label: `${look.label}, seed ${seed}` });
      }
      points.push({ x: average(1), y: average(2), r: 6, colour: look.colour, marker: look.marker, label: `${look.label}, mean of ${point.seeds.length}` });
    }
    return { lines: [], points, limits: limitLines("x", plane.points.filter(visible), (s) => SERIES[s]) };
  }

  function lineLook(i) {
    return PALETTE[i % PALETTE.length];
  }

  function sensitivityMarks(panel) {
    const points = [], lines = [], limits = new Map();
    panel.lines.forEach((line, i) => {
      const look = lineLook(i);
      const shown = line.points.filter((point) => !hidden.has(point.s));
      if (!shown.length) return;
      for (const { at, value, low, high, limit } of shown) {
        const where = panel.ticks ? panel.ticks[at] : short(at);
        // Side by side, so that no interval hides another.
        const shift = 5 * (i - (panel.lines.length - 1) / 2);
        points.push({ x: at, y: value, shift, r: 4, colour: look.colour, marker: look.marker, bar: low === null ? null : [low, high], label: `${line.label}, ${panel.field} ${where}` });
        if (limit !== null) limits.set(at, limit);
      }
      lines.push({ label: line.label, colour: look.colour, dash: look.dash, x: shown.map((r) => r.at), y: shown.map((r) => r.value), low: null, seeds: [] });
    });
    if (limits.size) {
      const at = [...limits.keys()].sort((a, b) => a - b);
      lines.push({ label: null, colour: INK, dash: "4 3", x: at, y: at.map((a) => limits.get(a)), low: null, seeds: [] });
    }
    return { lines, points, limits: [] };
  }

  // ---- the page

  const legend = document.getElementById("legend");
  const toggles = SERIES.map((look, i) => {
    const button = element("button", "", legend);
    button.type = "button";
    swatch(look, button);
    button.append(look.label);
    button.addEventListener("click", () => {
      if (hidden.has(i)) hidden.delete(i);
      else hidden.add(i);
      refresh();
    });
    return button;
  });

  function refresh() {
    toggles.forEach((button, i) => button.setAttribute("aria-pressed", String(!hidden.has(i))));
    document.getElementById("seeds").setAttribute("aria-pressed", String(singleRuns));
    drawAll();
  }

  document.getElementById("all").addEventListener("click", () => { hidden.clear(); refresh(); });
  document.getElementById("none").addEventListener("click", () => { SERIES.forEach((_, i) => hidden.add(i)); refresh(); });
  document.getElementById("seeds").addEventListener("click", () => { singleRuns = !singleRuns; refresh(); });
  document.getElementById("unzoom").addEventListener("click", unzoomAll);

  smoothingSlider((chosen) => { share = chosen; drawAll(); });

  const rows = new Map();
  for (const panel of DATA.curves) {
    if (!rows.has(panel.task)) rows.set(panel.task, element("div", "charts row", document.getElementById("curves")));
    const parent = panel.kind === "multiplier" ? document.getElementById("multipliers") : rows.get(panel.task);
    new Chart(parent, `${panel.task}: ${panel.label}`, "environment steps", panel.axis, () => curveMarks(panel));
  }
  for (const plane of DATA.planes) {
    new Chart(document.getElementById("planes"), `${plane.task}: return against ${plane.label}`, plane.label, "return", () => planeMarks(plane), { plane: true });
  }
  for (const panel of DATA.sensitivity) {
    new Chart(document.getElementById("sensitivity"), `${panel.task}: ${panel.label}`, panel.field, panel.label, () => sensitivityMarks(panel), { ticks: panel.ticks, key: panel.lines.map((line, i) => [lineLook(i), line.label]) });
  }
  for (const name of ["curves", "multipliers", "planes", "sensitivity"]) {
    if (!document.getElementById(name).children.length) document.getElementById(`section-${name}`).hidden = true;
  }
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.printed")) details.open = true;
  });
  refresh();
})();
