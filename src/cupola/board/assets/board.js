"use strict";
(() => {
  const { Chart, curve, drawAll, element, lateness, limitLines, short, smoothingSlider, styled, swatch, unzoomAll } = cupola;
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const PALETTE = DATA.palette.map(styled);
  const STATES = ["running", "failed", "interrupted", "finished", "waiting"];
  const FIRST_TICKED = 6, PAUSE = 1500, SLOWEST = 15000;
  const byId = (id) => document.getElementById(id);

  const rows = new Map();      // what the server said of each run
  const curves = new Map();    // of the ticked runs
  const ticked = new Set();
  const looks = new Map();     // colour, dash and marker of each ticked line
  const opened = new Map();    // which groups a person has opened or closed
  const panels = new Map();    // task and quantity -> chart
  let version = 0, state = { order: [], groups: [] }, chosenOnce = false;
  let together = false, share = 0, failures = 0;

  async function ask(address) {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  // ---- asking again and again

  async function poll() {
    try {
      const before = version;
      take(await ask(`/state?since=${version}`));
      if (await fetchCurves() || version !== before) refresh();
      failures = 0;
      tellConnection("");
    } catch {
      failures++;
      tellConnection(`The board does not answer: is 'cupola board' still running? Last heard ${failures > 1 ? "a while" : "a moment"} ago.`);
    }
    // A page that nobody looks at asks seldom.
    setTimeout(poll, Math.min(SLOWEST, PAUSE * (1 + failures) * (document.hidden ? 5 : 1)));
  }

  function take(news) {
    state = news;
    version = state.version;
    for (const row of state.rows) rows.set(row.id, row);
    const there = new Set(state.order);
    for (const id of [...rows.keys()]) if (!there.has(id)) { rows.delete(id); untick(id); }
    if (!chosenOnce) tickFirst();
  }

  // Curves are asked for when their run has more iterations than they show. Whether there are new ones.
  async function fetchCurves() {
    const wanted = [...ticked].filter((id) => rows.has(id) && rows.get(id).done && (curves.get(id) || {}).done !== rows.get(id).done);
    for (let i = 0; i < wanted.length; i += 40) {
      const some = wanted.slice(i, i + 40).map((id) => `run=${id}`).join("&");
      for (const found of await ask(`/curves?${some}`)) if (ticked.has(found.id)) curves.set(found.id, found);
    }
    return wanted.length > 0;
  }

  // What trains, or else what was written last.
  function tickFirst() {
    const order = (id) => [rows.get(id).state === "running" ? 0 : 1, -(rows.get(id).changed || 0)];
    const byOrder = (a, b) => order(a)[0] - order(b)[0] || order(a)[1] - order(b)[1];
    const begun = state.order.filter((id) => rows.get(id).done).sort(byOrder);
    for (const id of begun.slice(0, FIRST_TICKED)) ticked.add(id);
    chosenOnce = begun.length > 0;
  }

  function tellConnection(words) {
    const place = byId("connection");
    place.textContent = words;
    place.className = words ? "lost" : "";
  }

  // ---- ticking

  function untick(id) {
    ticked.delete(id);
    curves.delete(id);
  }

  // A line keeps its look as long as it is shown: the first look that no other line has.
  function lookOf(key, label) {
    if (!looks.has(key)) {
      const taken = new Set(looks.values());
      const free = PALETTE.find((look) => !taken.has(look));
      looks.set(key, free || PALETTE[looks.size % PALETTE.length]);
    }
    return { ...looks.get(key), label };
  }

  function lineKey(row) {
    return together ? `${row.group}\n${row.task}\n${row.series}` : row.id;
  }

  function dropLooks() {
    const used = new Set([...ticked].filter((id) => rows.has(id)).map((id) => lineKey(rows.get(id))));
    for (const key of [...looks.keys()]) if (!used.has(key)) looks.delete(key);
  }

  function changed() {
    refresh();
    fetchCurves().then(refresh, () => {});
  }

  // ---- the list of runs

  function matches(row) {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${row.name} ${row.algo} ${row.task} ${row.state} ${row.series}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function drawList() {
    const counts = {};
    for (const group of state.groups) for (const [name, n] of Object.entries(group.counts)) counts[name] = (counts[name] || 0) + n;
    const told = STATES.filter((name) => counts[name]).map((name) => `${counts[name]} ${name}`);
    byId("directory").textContent = state.directory;
    document.title = `${counts.running ? `(${counts.running}) ` : ""}${state.directory} - cupola board`;
    byId("overview").textContent = (told.length ? `${told.join(", ")}.` : "There are no runs here yet.") + state.notes.map((note) => ` ${note}.`).join("");
    byId("ticked").textContent = ticked.size ? `(${ticked.size} ticked)` : "";
    arrange();
  }

  // Rows are made once and then changed in place: one that is made anew would swallow a click.
  const nodes = new Map(), counters = new Map();
  let arrangement = "";

  function arrange() {
    const searching = byId("filter").value !== "";
    const members = state.groups.map((group) => {
      const mine = state.order.map((id) => rows.get(id)).filter((row) => row && row.group === group.name && matches(row));
      const finished = mine.filter((row) => row.state === "finished");
      // Running and failed ones first; the finished ones of a large group are folded away.
      const others = mine.filter((row) => row.state !== "finished").sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state));
      return { group, others, finished, folds: finished.length > 12 && others.length > 0 };
    }).filter(({ others, finished }) => !searching || others.length || finished.length);
    const now = JSON.stringify(members.map(({ group, others, finished, folds }) => [group.name, others.map((r) => r.id), finished.map((r) => r.id), folds]));
    if (now !== arrangement) {
      arrangement = now;
      counters.clear();
      byId("runs").replaceChildren(...members.map((one) => groupNode(one, searching)));
      for (const id of [...nodes.keys()]) if (!rows.has(id)) nodes.delete(id);
    }
    for (const { group, others, finished, folds } of members) {
      counters.get(group.name).textContent = ` ${STATES.filter((name) => group.counts[name]).map((name) => `${group.counts[name]} ${name}`).join(", ")}`;
      for (const row of [...others, ...finished]) updateRow(row, group);
      if (folds) counters.get(`finished ${group.name}`).textContent = `${finished.length} finished`;
    }
  }

  function groupNode({ group, others, finished, folds }, searching) {
    const box = element("details", "group");
    const summary = element("summary", "", box);
    element("b", "", summary, group.title);
    counters.set(group.name, element("span", "counts", summary));
    fold(box, `group ${group.name}`, true);
    for (const row of others) box.append(rowNode(row.id).label);
    let home = box;
    if (folds) {
      home = element("details", "more", box);
      counters.set(`finished ${group.name}`, element("summary", "", home));
      fold(home, `finished ${group.name}`, searching);
    }
    for (const row of finished) home.append(rowNode(row.id).label);
    return box;
  }

  function fold(details, key, open) {
    details.open = opened.has(key) ? opened.get(key) : open;
    details.querySelector("summary").addEventListener("click", () => opened.set(key, !details.open));
  }

  function rowNode(id) {
    if (nodes.has(id)) return nodes.get(id);
    const label = element("label", "run"), box = element("input", "", label);
    box.type = "checkbox";
    box.dataset.run = id;
    box.addEventListener("change", () => { if (box.checked) ticked.add(id); else untick(id); changed(); });
    const node = { label, box, told: "" };
    for (const part of ["swatch", "name", "state", "numbers"]) node[part] = element("span", part, label);
    node.bar = element("progress", "", label);
    nodes.set(id, node);
    return node;
  }

  function updateRow(row, group) {
    const node = rowNode(row.id), isTicked = ticked.has(row.id);
    const look = isTicked ? lookOf(lineKey(row), "") : null;
    const told = JSON.stringify([row, look]);
    if (node.told === told) return;
    node.told = told;
    node.label.className = `run ${row.state}${isTicked ? " chosen" : ""}`;
    node.label.title = `${row.name}\n${row.algo} on ${row.task}, seed ${row.seed}${row.reason ? `\n${row.reason}` : ""}`;
    node.box.checked = isTicked;
    node.swatch.replaceChildren();
    if (look) swatch(look, node.swatch);
    node.name.textContent = shortName(row, group);
    node.state.textContent = row.state === "running" && row.left !== null ? `${clock(row.left)} left` : row.state;
    node.numbers.textContent = numbers(row);
    node.bar.hidden = !row.asked || row.done >= row.asked || row.state === "failed";
    node.bar.max = row.asked || 1;
    node.bar.value = row.done;
    node.bar.setAttribute("aria-label", `${row.done} of ${row.asked} iterations`);
  }

  function shortName(row, group) {
    const inside = group.name === "." ? row.name : row.name.slice(group.name.length + 1);
    return inside === "." ? group.title : inside;
  }

  function numbers(row) {
    if (row.reason && row.state === "failed") return row.reason;
    if (!row.done) return row.state === "running" ? "compiling" : "no iteration yet";
    const parts = [row.asked && row.done < row.asked ? `${row.done}/${row.asked}` : `${row.done} it.`, `return ${short(row.return)}`];
    for (const cost of row.costs) {
      const sign = cost.cost === null ? "?" : cost.cost <= cost.limit ? "\u2264" : ">";
      parts.push(`${cost.name} ${short(cost.cost)} ${sign} ${short(cost.limit)}${cost.verdict === "-" ? "" : `, ${cost.verdict}`}`);
    }
    return parts.join(" \u00b7 ");
  }

  function clock(seconds) {
    const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
    return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  }

  // ---- charts

  function shownRuns() {
    return state.order.filter((id) => ticked.has(id) && curves.has(id)).map((id) => [rows.get(id), curves.get(id)]);
  }

  function label(row) {
    if (!together) return row.name;
    const groups = new Set(shownRuns().map(([one]) => one.group));
    return groups.size > 1 && row.group !== "." ? `${row.group}: ${row.series}` : row.series;
  }

  // One line for each ticked run, or for all seeds that share their settings.
  function linesOf(task, quantity) {
    const groups = new Map();
    for (const [row, found] of shownRuns()) {
      const panel = found.task === task && found.panels.find((one) => one.label === quantity);
      if (!panel) continue;
      const key = lineKey(row);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push({ row, x: found.x, panel });
    }
    return [...groups].map(([key, members]) => {
      const longest = members.reduce((a, b) => (b.x[b.x.length - 1] > a.x[a.x.length - 1] ? b : a));
      return {
        s: key, look: lookOf(key, label(members[0].row)), x: longest.x, limit: members[0].panel.limit,
        runs: members.map((one) => (one === longest ? one.panel.y : alongside(one, longest.x))),
        unfinished: members.map((one) => one.row.state !== "finished"),
      };
    });
  }

  // The values of a run at the steps of another one; unknown behind its own end.
  function alongside(one, xs) {
    const last = one.x[one.x.length - 1];
    let i = 0;
    return xs.map((x) => {
      while (i + 1 < one.x.length && Math.abs(one.x[i + 1] - x) <= Math.abs(one.x[i] - x)) i++;
      return x <= last ? one.panel.y[i] : null;
    });
  }

  function marks(task, panel) {
    const mine = linesOf(task, panel.label);
    const lines = mine.map((line) => curve(line.look, line, { share }));
    const look = new Map(mine.map((line) => [line.s, line.look]));
    return { lines, points: [], limits: limitLines("y", mine, (s) => look.get(s)), why: panel.evaluated ? "" : lateness(lines) };
  }

  function drawCharts() {
    const wanted = new Map();
    for (const [, found] of shownRuns()) {
      for (const panel of found.panels) wanted.set(`${found.task}\n${panel.label}`, [found.task, panel]);
    }
    for (const [key, chart] of [...panels]) {
      if (!wanted.has(key)) {
        const home = chart.box.parentNode;
        chart.remove();
        if (home.classList.contains("row") && !home.children.length) home.remove();
        panels.delete(key);
      }
    }
    for (const [key, [task, panel]] of wanted) {
      if (!panels.has(key)) {
        const home = panel.kind === "multiplier" ? byId("multipliers") : taskRow(task);
        panels.set(key, new Chart(home, `${task}: ${panel.label}`, "environment steps", panel.axis, () => marks(task, panel)));
      }
    }
    const coarsest = Math.max(1, ...shownRuns().map(([, found]) => found.bucket));
    byId("thinned").textContent = coarsest > 1 ? `A point is a mean over up to ${coarsest} iterations.` : "";
  }

  function taskRow(task) {
    const found = [...byId("curves").children].find((row) => row.dataset.task === task);
    if (found) return found;
    const row = element("div", "charts row", byId("curves"));
    row.dataset.task = task;
    return row;
  }

  // ---- tables and videos

  // Rows of [run, text or number or [text, class], ...].
  function table(place, heads, lines) {
    const found = element("table");
    const head = element("tr", "", element("thead", "", found));
    heads.forEach((name, i) => element("th", i && !lines.some((line) => isText(line[i])) ? "number" : "", head, name));
    const body = element("tbody", "", found);
    for (const [row, ...cells] of lines) {
      const line = element("tr", "", body);
      const first = element("td", "", line);
      swatch(lookOf(lineKey(row), ""), element("span", "swatch", first));
      first.append(row.name);
      for (const cell of cells) {
        const [value, mark] = Array.isArray(cell) ? cell : [cell, ""];
        if (typeof value === "string") element("td", mark, line, value);
        else element("td", `number ${mark}`, line, short(value === undefined ? null : value));
      }
    }
    byId(place).replaceChildren(found);
  }

  function isText(cell) {
    return typeof (Array.isArray(cell) ? cell[0] : cell) === "string";
  }

  function drawTables() {
    const held = [], timings = [];
    for (const [row, found] of shownRuns()) {
      for (const [cost, one] of Object.entries(found.held)) {
        const above = one.mean !== null && one.mean > one.limit ? "infeasible" : "";
        held.push([row, cost, one.limit, [one.mean, above], one.deviation, one.error, one.share_above, one.violation, [one.verdict, one.verdict.split(" ")[0]]]);
      }
      const t = found.timings;
      if (t.seconds !== undefined) timings.push([row, t.speed, t.seconds, t.rollout, t.first, t.minutes, row.left === null ? "-" : clock(row.left)]);
    }
    table("steadiness", ["run", "cost", "limit", "mean cost", "deviation", "sampling error", "share above 1.1 limit", "violation", "verdict"], held);
    table("timings", ["run", "steps/s", "seconds per iteration", "of it rollout", "first iteration, s", "minutes so far", "time left"], timings);
    show("steadiness", held.length);
    show("timings", timings.length);
  }

  const videos = new Map();
  function drawVideos() {
    const wanted = new Map([...ticked].map((id) => rows.get(id)).filter((row) => row && row.video).map((row) => [`${row.id} ${row.video.at}`, row]));
    for (const [key, figure] of [...videos]) if (!wanted.has(key)) { figure.remove(); videos.delete(key); }
    for (const [key, row] of wanted) {
      if (videos.has(key)) continue;
      const figure = element("figure", "", byId("videos"));
      element("figcaption", "", figure, `${row.name}: ${row.video.name}`);
      const film = element(row.video.moves ? "video" : "img", "", figure);
      if (row.video.moves) Object.assign(film, { controls: true, loop: true, muted: true });
      else film.alt = `video of ${row.name}`;
      film.src = `/video?run=${row.id}&at=${row.video.at}`;
      videos.set(key, figure);
    }
    show("videos", videos.size);
  }

  function show(name, count) {
    byId(`section-${name}`).hidden = !count;
  }

  // ---- all of it

  function drawLeftOut() {
    const place = byId("left-out");
    place.replaceChildren();
    if (!state.left_out || !state.left_out.length) return;
    const box = element("div", "failures", place);
    element("p", "", box, "Left out:");
    const list = element("ul", "", box);
    for (const [name, reason] of state.left_out) {
      const item = element("li", "", list);
      element("b", "", item, name);
      item.append(`: ${reason}`);
    }
  }

  function refresh() {
    dropLooks();
    drawLeftOut();
    drawList();
    drawCharts();
    show("curves", panels.size);
    show("multipliers", byId("multipliers").children.length);
    byId("hint").hidden = ticked.size > 0 || !state.order.length;
    byId("together").setAttribute("aria-pressed", String(together));
    drawAll();
    drawTables();
    drawVideos();
  }

  byId("filter").addEventListener("input", drawList);
  byId("tick-shown").addEventListener("click", () => {
    for (const id of state.order) if (rows.has(id) && rows.get(id).done && matches(rows.get(id))) ticked.add(id);
    changed();
  });
  byId("tick-none").addEventListener("click", () => { for (const id of [...ticked]) untick(id); changed(); });
  byId("together").addEventListener("click", () => { together = !together; refresh(); });
  byId("unzoom").addEventListener("click", unzoomAll);
  smoothingSlider((chosen) => { share = chosen; drawAll(); });
  if (window.matchMedia("(max-width: 900px)").matches) byId("list").open = false;
  take(DATA.state);
  refresh();
  poll();
})();
