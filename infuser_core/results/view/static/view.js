"use strict";
// Charts: drag to zoom, double click to see all, click a name to hide its line.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawn = [];
function draw() {
  while (drawn.length) drawn.pop().destroy();
  for (const place of document.querySelectorAll(".plot")) {
    const chart = JSON.parse(place.dataset.chart);
    const axis = { stroke: colour("--ink"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const lines = chart.labels.map((label, at) =>
      ({ label, stroke: colour("--c" + at), width: 2, dash: at % 2 ? [8, 5] : [], points: { show: true, size: 6 }, spanGaps: true }));
    drawn.push(new uPlot({
      width: place.clientWidth, height: 240, scales: { x: { time: false } },
      axes: [{ ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => +tick.toPrecision(4)) }],
      series: [{ label: "iteration" }, ...lines], cursor: { sync: { key: "iterations" } },
    }, chart.columns, place));
  }
}
let waiting = 0;
const again = () => { clearTimeout(waiting); waiting = setTimeout(draw, 120); };
addEventListener("DOMContentLoaded", draw);
addEventListener("resize", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
// "/" goes to the search field, "n" and "p" to the next and the previous page.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "/") { document.querySelector("input[type=search]")?.focus(); event.preventDefault(); }
  if (event.key === "n") document.querySelector("a[rel=next]")?.click();
  if (event.key === "p") document.querySelector("a[rel=prev]")?.click();
});
// A search field above a table of the same page hides the rows without its text.
addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const row of document.querySelectorAll(`#${event.target.dataset.filter || "none"} tbody tr`)) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
addEventListener("submit", (event) => { if (event.target.querySelector("[data-filter]")) event.preventDefault(); });
addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
// The slider of iterations shows the one it was moved to.
addEventListener("change", (event) => { if (event.target.type === "range") event.target.form.requestSubmit(); });
// A list in which something is selected stays as it is.
addEventListener("htmx:beforeRequest", (event) => { if (document.querySelector("input:checked")) event.preventDefault(); });
