// The map of nodes: drawing, zooming, searching, and hiding groups. Its data are in #map-data; the page has them as a table, too.
(() => {
  "use strict";
  const holder = document.getElementById("map-data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent), size = data.x.length;
  const by = (id) => document.getElementById(id);
  const view = by("map-view"), canvas = view.querySelector("canvas"), pen = canvas.getContext("2d");
  const readout = by("map-readout"), status = by("map-status"), legend = by("map-legend"), find = by("map-find");
  // The page's series colors without the gray one, which is for nodes in the background.
  const COLORS = [1, 2, 3, 4, 6, 7, 8], MARGIN = 26, MOST_ZOOM = 200, REACH = 16;
  const HINT = "Point at a node to see its name; click or tap it to select it and see its nearest nodes.";
  const folded = (text) => text.normalize("NFD").replace(/[\u0300-\u036f]/g, "").toLowerCase();
  const words = data.title.map((title, i) => folded(title + " " + (data.name[i] || "")));
  const coarse = matchMedia("(pointer: coarse)").matches;

  let coloring = data.colorings[0], hidden = new Set(), order = [], found = null, colors = {};
  let width = 1, height = 1, scale = 1, left = 0, top = 0, least = 1, home = 1;
  let over = -1, kept = -1, walk = 0, waiting = false;

  // -- places ------------------------------------------------------------------------------------------
  const atX = (i) => data.x[i] * scale + left, atY = (i) => data.y[i] * scale + top;
  const shows = (i) => !hidden.has(coloring.of[i]);

  const farthest = (numbers) => numbers.reduce((most, one) => Math.max(most, one), 1);
  const filling = (wide, tall) => Math.min((width - 2 * MARGIN) / wide, (height - 2 * MARGIN) / tall);

  // Fit the view to all visible nodes, or only to those with a color: in a large graph few nodes have a class.
  function fit(only) {
    const colored = (i) => !coloring.groups[coloring.of[i]][2];
    let chosen = [...data.x.keys()].filter(shows);
    if (only && chosen.some(colored)) chosen = chosen.filter(colored);
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (const i of chosen) {
      x0 = Math.min(x0, data.x[i]); x1 = Math.max(x1, data.x[i]);
      y0 = Math.min(y0, data.y[i]); y1 = Math.max(y1, data.y[i]);
    }
    if (x0 > x1) return;
    const wide = Math.max(x1 - x0, 1), tall = Math.max(y1 - y0, 1);
    scale = home = filling(wide, tall);
    left = (width - scale * (x0 + x1)) / 2;
    top = (height - scale * (y0 + y1)) / 2;
    later();
  }

  function zoom(times, x = kept < 0 ? width / 2 : atX(kept), y = kept < 0 ? height / 2 : atY(kept)) {
    const wanted = Math.max(least * 0.5, Math.min(least * MOST_ZOOM, scale * times)), ratio = wanted / scale;
    left = x - (x - left) * ratio; top = y - (y - top) * ratio; scale = wanted;
    later();
  }

  function nearestTo(x, y, reach) {
    let best = -1, least = reach * reach;
    for (let i = 0; i < size; i++) {
      if (!shows(i)) continue;
      const dx = atX(i) - x, dy = atY(i) - y, d = dx * dx + dy * dy;
      // Prefer a node with a color to one in the background.
      const weighed = coloring.groups[coloring.of[i]][2] ? d * 2 : d;
      if (weighed < least) { least = weighed; best = i; }
    }
    return best;
  }

  // -- drawing -----------------------------------------------------------------------------------------
  function readColors() {
    const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue("--" + name).trim();
    colors = { text: of("text"), card: of("card"), muted: of("muted"), accent: of("accent") };
    for (const i of COLORS) colors[i] = of("series-" + i);
  }

  function shape(where, kind, x, y, r) {
    if (kind === 0) { where.moveTo(x + r, y); where.arc(x, y, r, 0, 2 * Math.PI); }
    else if (kind === 1) where.rect(x - r * 0.88, y - r * 0.88, r * 1.76, r * 1.76);
    else { where.moveTo(x, y - r * 1.25); where.lineTo(x + r * 1.15, y + r * 0.8); where.lineTo(x - r * 1.15, y + r * 0.8); where.closePath(); }
  }

  // The radius depends on the available room, and grows slowly with the zoom.
  function radius() {
    const room = Math.sqrt(width * height / size);
    return Math.min(8, Math.max(2.4, Math.min(5.5, 0.33 * room)) * Math.pow(Math.max(1, scale / least), 0.25));
  }

  function points(group, chosen, alpha, r) {
    const [, , muted] = coloring.groups[group];
    pen.globalAlpha = alpha;
    pen.fillStyle = muted ? colors.muted : colors[COLORS[group % COLORS.length]];
    pen.beginPath();
    for (const i of chosen) {
      const x = atX(i), y = atY(i);
      if (x < -20 || y < -20 || x > width + 20 || y > height + 20) continue;
      shape(pen, muted ? 0 : Math.floor(group / COLORS.length), x, y, r);
    }
    pen.fill();
  }

  function draw() {
    waiting = false;
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const r = radius(), only = found !== null;
    for (const group of order) {
      if (hidden.has(group)) continue;
      const muted = coloring.groups[group][2], members = coloring.members[group];
      const small = muted && order.length > 1 ? r * 0.68 : r;
      points(group, members, only ? 0.12 : muted ? 0.38 : 0.8, small);
      if (only) points(group, members.filter((i) => found.has(i)), 1, r * 1.25);
    }
    pen.globalAlpha = 1;
    const marked = kept >= 0 ? kept : over;
    if (marked >= 0) around(marked, r);
    labels(marked, r);
    view.classList.toggle("zoomed", scale > home * 1.05);
  }

  // Draw a marked node, the nodes with the nearest vectors, and lines between them.
  function around(i, r) {
    pen.strokeStyle = colors.text; pen.lineWidth = 1; pen.globalAlpha = 0.55;
    pen.beginPath();
    for (const j of data.near[i]) { if (shows(j)) { pen.moveTo(atX(i), atY(i)); pen.lineTo(atX(j), atY(j)); } }
    pen.stroke();
    for (const j of [...data.near[i], i]) if (shows(j)) points(coloring.of[j], [j], 1, r);
    pen.globalAlpha = 1; pen.lineWidth = 2;
    pen.beginPath(); pen.arc(atX(i), atY(i), r + 4, 0, 2 * Math.PI); pen.stroke();
  }

  // Draw names where there is room: of marked nodes, then of found ones, then of groups, by number of triples.
  function labels(marked, r) {
    pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle"; pen.lineJoin = "round";
    const taken = [], room = Math.max(6, Math.round(width * height / 21000));
    const wanted = marked >= 0 ? [marked, ...data.near[marked]] : [];
    const queue = [...wanted, ...(found !== null ? [...found] : coloring.queue)];
    for (const i of queue) {
      if (taken.length >= room) break;
      const x = atX(i), y = atY(i);
      if (!shows(i) || x < 0 || y < 8 || x > width || y > height - 8) continue;
      const title = data.title[i].length > 32 ? data.title[i].slice(0, 31) + "…" : data.title[i];
      const long = pen.measureText(title).width, start = x + r + 4 + long < width ? x + r + 4 : x - r - 4 - long;
      if (start < 2) continue;
      const box = [start - 2, y - 8, start + long + 2, y + 8];
      if (taken.some((b) => box[0] < b[2] && box[2] > b[0] && box[1] < b[3] && box[3] > b[1])) continue;
      taken.push(box);
      pen.strokeStyle = colors.card; pen.lineWidth = 3.5; pen.strokeText(title, start, y);
      pen.fillStyle = colors.text; pen.fillText(title, start, y);
    }
  }

  function later() {
    if (!waiting) { waiting = true; requestAnimationFrame(draw); }
    place();
  }

  // -- saying ------------------------------------------------------------------------------------------
  function facts(i) {
    const lines = [data.title[i]];
    if (data.name[i]) lines.push(data.name[i]);
    for (const one of data.colorings) {
      const [title, , muted] = one.groups[one.of[i]];
      const sure = one.key === "predicted" && data.percent ? " (" + data.percent[i] + " %)" : "";
      if (!muted) lines.push(one.title + ": " + title + sure);
    }
    lines.push(data.degree[i].toLocaleString("en") + (data.degree[i] === 1 ? " triple" : " triples"));
    return lines;
  }

  function place() {
    const i = kept >= 0 ? kept : over;
    readout.hidden = i < 0;
    if (i < 0) return;
    readout.textContent = facts(i).join("\n");
    const x = atX(i), y = atY(i), w = readout.offsetWidth, h = readout.offsetHeight;
    const sideways = x + 16 + w < width ? x + 16 : x - 16 - w;
    readout.style.left = Math.max(4, Math.min(width - w - 4, sideways)) + "px";
    readout.style.top = Math.max(4, Math.min(height - h - 4, y < height / 2 ? y + 14 : y - 14 - h)) + "px";
  }

  function say(i) {
    const near = data.near[i].map((j) => data.title[j]).join(", ");
    status.textContent = facts(i).join("; ") + (near ? ". Nearest by vector: " + near + "." : ".");
  }

  function keep(i) {
    kept = i;
    if (i >= 0) { bring(i); say(i); } else if (found === null) status.textContent = HINT;
    later();
  }

  function bring(i) {
    const x = atX(i), y = atY(i);
    if (x < 30 || x > width - 30) left += width / 2 - x;
    if (y < 30 || y > height - 30) top += height / 2 - y;
  }

  // -- groups ------------------------------------------------------------------------------------------
  function mark(group, muted) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), kind = muted ? 0 : Math.floor(group / COLORS.length);
    const form = document.createElementNS(svg.namespaceURI, ["circle", "rect", "path"][kind]);
    const sizes = [{ cx: 7, cy: 7, r: 5 }, { x: 2.5, y: 2.5, width: 9, height: 9 }, { d: "M7 1.5 13 12H1Z" }][kind];
    for (const [key, value] of Object.entries(sizes)) form.setAttribute(key, value);
    form.style.fill = muted ? "var(--muted)" : "var(--series-" + COLORS[group % COLORS.length] + ")";
    svg.setAttribute("width", 14); svg.setAttribute("height", 14); svg.setAttribute("aria-hidden", "true");
    svg.append(form);
    return svg;
  }

  function button(text, act) {
    const made = document.createElement("button");
    made.type = "button"; made.append(text); made.addEventListener("click", act);
    return made;
  }

  function setColoring(number) {
    coloring = data.colorings[number]; hidden = new Set();
    const count = coloring.groups.length;
    if (!coloring.members) {
      coloring.members = Array.from({ length: count }, () => []);
      coloring.of.forEach((group, i) => coloring.members[group].push(i));
      const rank = (i) => coloring.groups[coloring.of[i]][2];
      coloring.queue = [...data.x.keys()].sort((a, b) => rank(a) - rank(b) || data.degree[b] - data.degree[a] || a - b);
    }
    // The background first, then groups from the largest to the smallest, so that small ones are on top.
    order = [...coloring.groups.keys()].sort((a, b) => coloring.groups[b][2] - coloring.groups[a][2] || a - b);
    const toggles = coloring.groups.map(([title, members, muted], group) => {
      const amount = document.createElement("span");
      amount.className = "number"; amount.textContent = members.toLocaleString("en");
      const one = button(mark(group, muted), () => { hidden.has(group) ? hidden.delete(group) : hidden.add(group); refresh(); });
      one.append(title, " ", amount);
      return one;
    });
    const all = button("", () => { hidden = hidden.size ? new Set() : new Set(coloring.groups.keys()); refresh(); });
    const refresh = () => {
      toggles.forEach((one, group) => one.setAttribute("aria-pressed", String(!hidden.has(group))));
      all.textContent = hidden.size ? "Show all" : "Hide all";
      if (kept >= 0 && !shows(kept)) kept = -1;
      over = -1;
      later();
    };
    legend.replaceChildren(...(count > 1 ? [...toggles, all] : toggles));
    by("map-about").textContent = coloring.about;
    refresh();
  }

  // -- finding -----------------------------------------------------------------------------------------
  function search() {
    const text = folded(find.value.trim());
    found = text ? new Set(words.flatMap((word, i) => word.includes(text) ? [i] : [])) : null;
    walk = 0; kept = -1;
    const count = found === null ? 0 : found.size;
    status.textContent = found === null ? HINT : count === 0 ? "No node on the map has this name." :
      count.toLocaleString("en") + (count === 1 ? " node is" : " nodes are") + " marked; Enter goes to " + (count === 1 ? "it." : "the next one.");
    later();
  }

  function next(back) {
    const all = found === null ? [] : coloring.queue.filter((i) => found.has(i) && shows(i));
    if (!all.length) return;
    if (kept >= 0) walk = (walk + (back ? all.length - 1 : 1)) % all.length;
    keep(all[walk % all.length]);
  }

  // -- keys, wheel, fingers ----------------------------------------------------------------------------
  function step(dx, dy) {
    if (kept < 0) { keep(nearestTo(width / 2, height / 2, Infinity)); return; }
    let best = -1, least = Infinity;
    for (let i = 0; i < size; i++) {
      if (i === kept || !shows(i)) continue;
      const x = atX(i) - atX(kept), y = atY(i) - atY(kept), ahead = x * dx + y * dy, aside = Math.abs(x * dy - y * dx);
      if (ahead <= 0.01 || aside > ahead * 1.2) continue;
      const d = ahead + 2 * aside;
      if (d < least) { least = d; best = i; }
    }
    if (best >= 0) keep(best);
  }

  view.addEventListener("keydown", (event) => {
    const acts = {
      ArrowLeft: () => step(-1, 0), ArrowRight: () => step(1, 0), ArrowUp: () => step(0, -1), ArrowDown: () => step(0, 1),
      "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), "0": () => fit(true), Escape: () => keep(-1),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  });

  const local = (event) => { const box = view.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  view.addEventListener("wheel", (event) => {
    // Scrolling down over a map that is not zoomed scrolls the page.
    if (event.deltaY > 0 && scale <= home * 1.001 && !event.ctrlKey) return;
    event.preventDefault();
    const times = Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0016));
    zoom(scale * times < home && scale > home ? home / scale : times, ...local(event));
  }, { passive: false });

  const fingers = new Map();
  let moved = 0;
  view.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    fingers.set(event.pointerId, local(event));
    view.setPointerCapture(event.pointerId);
    moved = 0;
  });
  view.addEventListener("pointermove", (event) => {
    const now = local(event), before = fingers.get(event.pointerId);
    if (!before) {
      const i = event.pointerType === "touch" ? -1 : nearestTo(...now, REACH);
      if (i !== over) { over = i; view.classList.toggle("near", i >= 0); later(); }
      return;
    }
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (fingers.size === 2) pinch(event.pointerId, before, now);
    else if (moved > 3 && (event.pointerType !== "touch" || scale > home * 1.05)) {
      left += now[0] - before[0]; top += now[1] - before[1];
      view.classList.add("moving"); later();
    }
    fingers.set(event.pointerId, now);
  });
  function pinch(id, before, now) {
    const [, other] = [...fingers].find(([one]) => one !== id);
    const apart = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]);
    zoom(apart(now) / Math.max(apart(before), 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    left += (now[0] - before[0]) / 2; top += (now[1] - before[1]) / 2;
  }
  const lift = (event) => {
    const was = fingers.delete(event.pointerId);
    view.classList.remove("moving");
    if (was && event.type === "pointerup" && moved < 6 && !fingers.size) keep(nearestTo(...local(event), coarse ? 26 : REACH));
  };
  view.addEventListener("pointerup", lift);
  view.addEventListener("pointercancel", lift);
  view.addEventListener("pointerleave", () => { if (over >= 0) { over = -1; later(); } });

  // -- beginning ---------------------------------------------------------------------------------------
  by("map-in").addEventListener("click", () => zoom(1.5));
  by("map-out").addEventListener("click", () => zoom(1 / 1.5));
  by("map-fit").addEventListener("click", () => fit(true));
  by("map-all").addEventListener("click", () => fit(false));
  by("map-color").addEventListener("change", (event) => setColoring(Number(event.target.value)));
  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); next(event.shiftKey); }
    if (event.key === "Escape") { find.value = ""; search(); }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); later(); });
  let begun = false;
  new ResizeObserver(() => {
    const whole = !begun || scale === home;
    width = view.clientWidth; height = view.clientHeight;
    canvas.width = Math.round(width * devicePixelRatio); canvas.height = Math.round(height * devicePixelRatio);
    least = filling(farthest(data.x), farthest(data.y));
    if (whole) fit(true); else later();
    begun = true;
  }).observe(view);
  readColors();
  status.textContent = HINT;
  by("map-color").value = "0";  // a browser may restore another choice after a reload
  setColoring(0);
})();

// The chart of similar relations: the value of a cell.
(() => {
  "use strict";
  const picture = document.getElementById("alike");
  if (!picture) return;
  const values = picture.dataset.hundredths.split(";").map((row) => row.split(",").map(Number));
  const readout = document.getElementById("alike-readout"), names = [...picture.querySelectorAll("tbody th bdi")];
  const rows = [...picture.querySelectorAll("tbody tr")];
  let last = null;
  const show = (event) => {
    const cell = event.target.closest("td");
    if (!cell || cell === last) return;
    const column = cell.cellIndex - 1, row = rows.indexOf(cell.parentElement);
    if (last) last.classList.remove("at");
    cell.classList.add("at"); last = cell;
    const called = (i) => names[i].title || names[i].textContent;
    readout.textContent = row === column ? called(row) : called(row) + " and " + called(column) + ": " + (values[row][column] / 100).toFixed(2);
  };
  picture.addEventListener("pointerover", show);
  picture.addEventListener("click", show);
})();
