// Values at the pointer on curves, and sorting of tables. The page is complete without scripts.
for (const plot of document.querySelectorAll("[data-chart]")) {
  const data = JSON.parse(plot.dataset.chart), svg = plot.querySelector("svg");
  const cross = document.createElement("div"), readout = document.createElement("div");
  cross.className = "cross"; readout.className = "readout"; cross.hidden = readout.hidden = true;
  plot.append(cross, readout);
  const hide = () => { cross.hidden = readout.hidden = true; };
  const show = (event) => {
    const box = svg.getBoundingClientRect(), around = plot.getBoundingClientRect();
    const at = 100 * (event.clientX - box.left) / box.width;
    const nearest = data.series.map((one) => one.points.reduce(
      (best, point) => Math.abs(point[1] - at) < Math.abs(best[1] - at) ? point : best));
    const first = nearest.reduce((best, point) => Math.abs(point[1] - at) < Math.abs(best[1] - at) ? point : best);
    const lines = data.series.map((one, i) => one.name + "  " + nearest[i][2] +
      (nearest[i][0] === first[0] ? "" : "  (at " + nearest[i][0].toLocaleString("en") + ")"));
    readout.textContent = [data.label + " " + first[0].toLocaleString("en"), ...lines].join("\n");
    cross.hidden = readout.hidden = false;
    const left = box.left - around.left + box.width * first[1] / 100;
    cross.style.cssText = `left:${left}px;top:${box.top - around.top}px;height:${box.height}px`;
    const room = around.width - readout.offsetWidth;
    const wanted = left > around.width / 2 ? left - readout.offsetWidth - 10 : left + 10;
    readout.style.cssText = `left:${Math.max(0, Math.min(room, wanted))}px;top:${box.top - around.top}px`;
  };
  plot.addEventListener("pointermove", show);
  plot.addEventListener("pointerdown", show);
  plot.addEventListener("pointerleave", hide);
}
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent.replace(/[,%]/g, "").trim();
    return text !== "" && !isNaN(text) ? Number(text) : cell.textContent.trim().toLowerCase();
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button"; button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const numeric = typeof value(body.rows[0], column) === "number";
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : numeric;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a, column), y = value(b, column);
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
      body.append(...rows);
    });
  });
}
