"use strict";
// Charts over iterations. Drag to zoom, double click to see all, click to open the iteration.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawn = [];
const worth = (value, unit) => value == null ? "–" : Math.abs(value) < 1e-9 ? (unit === "%" ? "0%" : "0") : unit === "%" ? `${+(100 * value).toPrecision(3)}%` : `${+value.toPrecision(3)}`;
// A label's colour is that of its run or role, the same in all charts; the generator's lines are dashed next to a solver's.
const legend = () => [...document.querySelectorAll("[data-line]")].map((each) => each.dataset.line);
function hue(label, at) {
  const lines = legend();
  const place = lines.findIndex((line) => label === line || label.startsWith(line + " "));
  return `--c${place < 0 ? at : place % 12}`;
}
const hidden = (label) => [...document.querySelectorAll("[data-line][aria-pressed=false]")]
  .some((each) => label === each.dataset.line || label.startsWith(each.dataset.line + " "));

function read(place, chart, at) {
  const output = place.parentElement.querySelector("output");
  if (!output) return;
  const x = chart.columns[0], last = at == null;
  const parts = chart.labels.map((label, line) => {
    const values = chart.columns[line + 1];
    const spot = last ? values.findLastIndex((value) => value != null) : at;
    const part = document.createElement("b");
    part.append(worth(values[spot], chart.unit));
    if (chart.labels.length > 1 && !legend().length) {
      const name = document.createElement("span");
      name.className = `key k${line}`;
      name.append(label);
      part.prepend(name, " ");
    }
    return part;
  });
  const where = last ? [] : [`iteration ${x[at]} `];
  output.replaceChildren(...where, ...(chart.labels.length > 4 && last ? [] : parts.flatMap((part) => [part, " "])));
}

function marks(chart) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = ctx.strokeStyle = colour("--soft");
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    if (chart.anchor != null) {
      const y = plot.valToPos(chart.anchor, "y", true);
      ctx.setLineDash([6, 6]);
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
      ctx.textAlign = "right"; ctx.textBaseline = "bottom";
      ctx.fillText(`anchor ${worth(chart.anchor, chart.unit)}`, bbox.left + bbox.width - 4, y - 5 * devicePixelRatio);
    }
    const at = chart.selected == null ? -1 : chart.columns[0].indexOf(chart.selected);
    if (at >= 0 && chart.columns[1][at] != null) {
      ctx.fillStyle = colour("--star");
      ctx.font = `${22 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = "center"; ctx.textBaseline = "middle";
      ctx.fillText("★", plot.valToPos(chart.selected, "x", true), plot.valToPos(chart.columns[1][at], "y", true));
    }
    ctx.restore();
  };
}

function plot(place) {
  const chart = place.chart ??= JSON.parse(place.dataset.chart);
  const small = !place.classList.contains("hero");
  const lines = chart.labels.map((label, at) => ({
    label, stroke: colour(hue(label, at)), width: 2, show: !hidden(label), spanGaps: true,
    dash: legend().length && label.endsWith(" generator") ? [6, 4] : [], points: { show: !small && chart.labels.length < 3, size: 7 },
  }));
  const edges = [], bands = [], ends = [];
  chart.bands?.forEach(([low, high], at) => {
    if (!low.some((value) => value != null) || hidden(chart.labels[at])) return;
    const first = 1 + lines.length + ends.length;
    ends.push(low, high);
    edges.push(...[0, 1].map(() => ({ width: 0, stroke: "transparent", points: { show: false }, spanGaps: true })));
    bands.push({ series: [first + 1, first], fill: colour(hue(chart.labels[at], at)) + "2e" });
  });
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const options = {
    width: place.clientWidth, height: small ? 120 : 300,
    scales: { x: { time: false }, y: { range: (_, low, high) => high - low < 1e-6 && Math.abs(high) < 1e-6 ? [0, .01] : uPlot.rangeNum(low, high, { min: { pad: .1, soft: 0, mode: 3 }, max: { pad: .1, soft: 0, mode: 3 } }) } }, legend: { show: false }, bands,
    axes: [
      { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], size: small ? 22 : 24, ...(small ? {} : { label: "iteration", labelGap: 0, labelSize: 18, labelFont: axis.font }) },
      { ...axis, size: 52, space: small ? 30 : 44, values: (_, ticks) => ticks.map((tick) => worth(tick, chart.unit)) },
    ],
    series: [{}, ...lines, ...edges], cursor: { sync: { key: "iterations" }, points: { size: 8 } },
    hooks: { draw: [marks(chart)], setCursor: [(self) => read(place, chart, self.cursor.idx)] },
  };
  const made = new uPlot(options, [...chart.columns, ...ends], place);
  place.setAttribute("aria-label", `${chart.title}: ${chart.labels.map((label, at) => `${label} ${worth(chart.columns[at + 1].findLast((value) => value != null), chart.unit)}`).join(", ")}`);
  read(place, chart, null);
  let down = 0;
  made.over.addEventListener("mousedown", (event) => { down = event.clientX; });
  made.over.addEventListener("click", (event) => {
    const at = made.cursor.idx;
    if (place.dataset.href && at != null && Math.abs(event.clientX - down) < 4) location = place.dataset.href + chart.columns[0][at];
  });
  drawn.push(made);
}
function draw() {
  while (drawn.length) drawn.pop().destroy();
  document.querySelectorAll(".plot").forEach(plot);
}
let waiting = 0;
const again = () => { clearTimeout(waiting); waiting = setTimeout(draw, 120); };
addEventListener("DOMContentLoaded", draw);
addEventListener("resize", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

// A running run: every three seconds its state, its iterations and the new points of its charts.
function extend(chart, more) {
  const kept = chart.columns[0].findIndex((x) => x >= (more.columns[0][0] ?? Infinity));
  const cut = (values) => kept < 0 ? values : values.slice(0, kept);
  const old = chart.columns[0].length;
  const line = (set, label, blank) => { const at = chart.labels.indexOf(label); return at < 0 ? blank : cut(set[at]); };
  const blank = cut(Array(old).fill(null));
  const columns = more.labels.map((label, at) => [...line(chart.columns.slice(1), label, blank), ...more.columns[at + 1]]);
  const bands = more.labels.map((label, at) => [0, 1].map((end) => {
    const known = chart.labels.indexOf(label);
    return [...(known < 0 ? blank : cut(chart.bands[known][end])), ...more.bands[at][end]];
  }));
  return { ...more, columns: [[...cut(chart.columns[0]), ...more.columns[0]], ...columns], bands };
}
async function follow() {
  const live = document.querySelector("[data-live]");
  if (!live) return;
  const places = [...document.querySelectorAll(".plot")];
  const newest = Math.max(-1, ...places.map((place) => place.chart?.columns[0].at(-1) ?? -1));
  // The newest iteration may get further numbers.
  const answer = await fetch(`${live.dataset.live}?since=${Math.max(-1, newest - 1)}`).catch(() => null);
  if (!answer?.ok) return void setTimeout(follow, 3000);
  const news = await answer.json();
  for (const [part, html] of Object.entries(news.parts)) document.getElementById(part).innerHTML = html;
  const known = new Set(places.map((place) => place.chart.title));
  if (news.state !== "running" || news.charts.some((chart) => !known.has(chart.title))) return void location.reload();
  for (const place of places) {
    const more = news.charts.find((chart) => chart.title === place.chart.title);
    if (more?.columns[0].length) place.chart = extend(place.chart, more);
  }
  draw();
  setTimeout(follow, 3000);
}
addEventListener("DOMContentLoaded", () => setTimeout(follow, 3000));

// "/" goes to the search field, "n" and "p" to the next and the previous page.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "/") { document.querySelector("input[type=search]")?.focus(); event.preventDefault(); }
  if (event.key === "n" || event.key === "ArrowRight") document.querySelector("a[rel=next]")?.click();
  if (event.key === "p" || event.key === "ArrowLeft") document.querySelector("a[rel=prev]")?.click();
});
// A search field above a table of the same page hides the rows without its text.
addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const row of document.querySelectorAll(`#${event.target.dataset.filter || "none"} tbody tr`)) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
addEventListener("submit", (event) => { if (event.target.querySelector("[data-filter]") && !event.submitter?.formAction.includes("compare")) event.preventDefault(); });
addEventListener("click", (event) => {
  const copy = event.target.closest("[data-copy]"), line = event.target.closest("button[data-line]");
  if (copy) navigator.clipboard.writeText(copy.dataset.copy).then(() => { copy.textContent = "copied"; });
  if (line) { line.setAttribute("aria-pressed", line.getAttribute("aria-pressed") === "false"); draw(); }
});
addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
// The slider of iterations shows the one it was moved to; a choice in a filter applies at once.
addEventListener("change", (event) => { if (event.target.matches("[type=range], .filters select")) event.target.form.requestSubmit(); });
// A list in which something is selected stays as it is.
addEventListener("htmx:beforeRequest", (event) => { if (document.querySelector("input:checked")) event.preventDefault(); });
