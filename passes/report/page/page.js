// Draws the timeline of the report: device memory above three lanes that share one time axis. Every redraw looks at what
// the visible window holds; whatever is narrower than a pixel is drawn as its share of that pixel.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const host = document.getElementById("timeline");
  const tip = document.getElementById("tip");
  const { compute, transfers, stalls, buffers, names } = data;
  const transferIndex = { up: [], down: [] };
  transfers.start.forEach((_, i) => transferIndex[transfers.up[i] ? "up" : "down"].push(i));
  const stallEnd = (i) => stalls.at[i] + stalls.duration[i];
  // More lanes than fit share the last one.
  const maxComputeLanes = 6;
  const laneCount = Math.min(data.computeLanes, maxComputeLanes);
  const drawnLane = (lane) => Math.min(lane, laneCount - 1);
  const nodesOfLane = Array.from({ length: laneCount }, () => []);
  const stallsOfLane = Array.from({ length: laneCount }, () => []);
  compute.lane.forEach((lane, i) => nodesOfLane[drawnLane(lane)].push(i));
  const drawnNodes = [["compute", 0], ["again", 1]].map(([style, again]) => [style, nodesOfLane.map((lane) => lane.filter((i) => compute.again[i] === again))]);
  stalls.lane.forEach((lane, i) => stallsOfLane[drawnLane(lane)].push(i));
  const totalUs = Math.max(data.totalUs, data.inMemoryUs, 1e-3);
  let view = { from: 0, to: totalUs };
  let hovered = null; // { kind: "compute" | "transfer" | "stall", index }
  let layout = null;

  // ---- quantities -------------------------------------------------------------------------------------------------
  const threeDigits = (v) => (v >= 99.95 ? v.toFixed(0) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2));
  function time(us) {
    if (Math.abs(us) < 1e-9) return "0 µs";
    if (us < 999.5) return `${threeDigits(us)} µs`;
    return us < 999.5e3 ? `${threeDigits(us / 1e3)} ms` : `${threeDigits(us / 1e6)} s`;
  }
  function bytes(n) {
    const units = ["KiB", "MiB", "GiB", "TiB"];
    if (n < 1024) return `${n} B`;
    let unit = 0;
    for (n /= 1024; n >= 1023.5 && unit + 1 < units.length; n /= 1024) ++unit;
    return `${threeDigits(n)} ${units[unit]}`;
  }
  function shorten(name, length) {
    if (name.length <= length) return name;
    const tail = Math.floor((length - 1) / 2);
    return `${name.slice(0, length - 1 - tail)}…${name.slice(name.length - tail)}`;
  }
  function niceStep(span, wanted) {
    const raw = span / wanted;
    const power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((f) => f * power).find((step) => raw <= step * 1.0001);
  }

  // ---- drawing ----------------------------------------------------------------------------------------------------
  const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const rect = (style, x, y, w, h, more = "") =>
    `<rect class="${style}" x="${x.toFixed(2)}" y="${y.toFixed(2)}" width="${Math.max(w, 0).toFixed(2)}" height="${h.toFixed(2)}"${more}/>`;
  const line = (style, x1, y1, x2, y2) =>
    `<line class="${style}" x1="${x1.toFixed(2)}" y1="${y1.toFixed(2)}" x2="${x2.toFixed(2)}" y2="${y2.toFixed(2)}"/>`;
  const text = (style, x, y, anchor, content) =>
    `<text class="${style}" x="${x.toFixed(2)}" y="${y.toFixed(2)}" text-anchor="${anchor}">${escape(content)}</text>`;

  const laneHeight = 26;
  const labelRows = 3;
  const labelRowHeight = 17;

  function makeLayout() {
    const width = Math.max(host.clientWidth, 280);
    const narrow = width < 620;
    const left = narrow ? 70 : 92;
    const right = width - 12;
    const memory = { top: 14, bottom: narrow ? 134 : 184 };
    const up = memory.bottom + 24;
    const labels = up + laneHeight + 8;
    const computeTop = labels + (stalls.at.length ? labelRows * labelRowHeight : 0) + 8;
    const computeBottom = computeTop + laneCount * (laneHeight + 3) - 3;
    const down = computeBottom + 26;
    const axis = down + laneHeight + 6;
    const minimap = axis + 34;
    return { width, narrow, left, right, memory, up, labels, computeTop, computeBottom, down, axis, minimap, height: minimap + 22 };
  }
  const x = (us) => layout.left + ((us - view.from) / (view.to - view.from)) * (layout.right - layout.left);
  const timeAt = (px) => view.from + ((px - layout.left) / (layout.right - layout.left)) * (view.to - view.from);

  // Blocks wide enough are drawn one by one; the rest of a lane goes into bins of one pixel, shaded by how busy they are.
  function drawBlocks(style, count, startOf, endOf, top, height, labelOf) {
    const minimum = 1.5;
    const scale = (layout.right - layout.left) / (view.to - view.from);
    const busy = new Float64Array(Math.ceil(layout.right - layout.left) + 1);
    let out = "";
    for (let i = 0; i < count; ++i) {
      const start = Math.max(startOf(i), view.from);
      const end = Math.min(endOf(i), view.to);
      if (end <= start) continue;
      const width = (end - start) * scale;
      if (width >= minimum) {
        const gap = width > 5 ? 1 : width > 2.5 ? 0.5 : 0;
        out += rect(style, x(start), top, width - gap, height, width > 8 ? ' rx="2"' : "");
        const label = labelOf ? labelOf(i) : "";
        const letters = Math.floor((width - 12) / 7);
        if (label && letters >= 6) out += text("block-label", x(start) + 6, top + height / 2 + 4.5, "start", shorten(label, letters));
        continue;
      }
      const from = (start - view.from) * scale;
      const bin = Math.floor(from);
      const inFirst = Math.min(width, bin + 1 - from);
      busy[bin] += inFirst;
      if (bin + 1 < busy.length) busy[bin + 1] += width - inFirst;
    }
    return out + drawBins(style, busy, top, height);
  }
  // Neighbouring bins of about the same load become one rectangle.
  function drawBins(style, busy, top, height) {
    const levels = 8;
    const level = (share) => (share <= 0.004 ? 0 : Math.max(1, Math.round(Math.min(share, 1) * levels)));
    let out = "";
    for (let i = 0; i < busy.length; ) {
      const shade = level(busy[i]);
      let end = i + 1;
      while (end < busy.length && level(busy[end]) === shade) ++end;
      if (shade) out += rect(style, layout.left + i, top, end - i, height, ` opacity="${(0.25 + (0.75 * shade) / levels).toFixed(2)}"`);
      i = end;
    }
    return out;
  }

  function drawMemory() {
    const { top, bottom } = layout.memory;
    const peak = Math.max(data.peakBefore, data.budget, 1) * 1.05;
    const y = (n) => bottom - (n / peak) * (bottom - top);
    let unitSize = 1024;
    let unitName = "KiB";
    for (const [size, name] of [[1024 ** 2, "MiB"], [1024 ** 3, "GiB"], [1024 ** 4, "TiB"]])
      if (peak >= 2 * size) [unitSize, unitName] = [size, name];
    const step = niceStep(peak / unitSize, layout.narrow ? 3 : 4);
    let out = "";
    for (let tick = 0; tick * unitSize <= peak; tick += step) {
      out += line("grid", layout.left, y(tick * unitSize), layout.right, y(tick * unitSize));
      out += text("", layout.left - 8, y(tick * unitSize) + 4.5, "end", tick ? `${+tick.toPrecision(6)} ${unitName}` : "0");
    }
    const after = stepPath(data.after, y, totalUs);
    if (after) out += `<path class="after" d="${after.d}L${after.lastX.toFixed(1)} ${bottom}L${after.firstX.toFixed(1)} ${bottom}Z" stroke="none" style="stroke:none"/><path class="after" style="fill:none" d="${after.d}"/>`;
    const before = stepPath(data.before, y, data.inMemoryUs);
    if (before) out += `<path class="before" d="${before.d}"/>`;
    const budgetY = y(data.budget);
    out += line("budget", layout.left, budgetY, layout.right, budgetY);
    out += text("budget-label halo", layout.right - 4, budgetY - 6, "end", `budget ${bytes(data.budget)}`);
    return out;
  }
  // A staircase; per pixel column only its lowest and highest step is kept.
  function stepPath(points, y, endUs) {
    const [times, values] = points;
    const until = Math.min(view.to, endUs);
    if (!times.length || until <= view.from) return null;
    let i = 0;
    while (i + 1 < times.length && times[i + 1] <= view.from) ++i;
    const firstX = x(Math.max(times[i], view.from));
    let value = values[i];
    let d = `M${firstX.toFixed(1)} ${y(value).toFixed(1)}`;
    for (++i; i < times.length && times[i] < until; ) {
      const column = Math.floor(x(times[i]));
      let low = value, high = value;
      const columnX = x(times[i]);
      for (; i < times.length && times[i] < until && Math.floor(x(times[i])) === column; ++i) {
        value = values[i];
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
      d += `H${columnX.toFixed(1)}`;
      if (high !== value) d += `V${y(high).toFixed(1)}`;
      if (low !== value) d += `V${y(low).toFixed(1)}`;
      d += `V${y(value).toFixed(1)}`;
    }
    const lastX = x(until);
    return { d: `${d}H${lastX.toFixed(1)}`, firstX, lastX };
  }

  function drawLanes() {
    const track = (top, height) => rect("track", layout.left, top, layout.right - layout.left, height, ' rx="3"');
    let out = track(layout.up, laneHeight) + track(layout.down, laneHeight);
    for (let lane = 0; lane < laneCount; ++lane) {
      const top = laneTop(lane);
      out += track(top, laneHeight);
      // Below the nodes: a lane may do something else while one of its nodes waits.
      out += drawBlocks("stall", stallsOfLane[lane].length, (i) => stalls.at[stallsOfLane[lane][i]], (i) => stallEnd(stallsOfLane[lane][i]), top, laneHeight);
      for (const [style, nodes] of drawnNodes) {
        const members = nodes[lane];
        out += drawBlocks(style, members.length, (i) => compute.start[members[i]], (i) => compute.end[members[i]], top, laneHeight,
          (i) => names[compute.name[members[i]]][0]);
      }
    }
    for (const [style, top] of [["up", layout.up], ["down", layout.down]]) {
      const members = transferIndex[style];
      out += drawBlocks(style, members.length, (i) => transfers.start[members[i]], (i) => transfers.end[members[i]], top, laneHeight,
        (i) => buffers[transfers.buffer[members[i]]][0]);
    }
    const label = (name, top) => text("lane-label", layout.left - 8, top + laneHeight / 2 + 4.5, "end", name);
    const inBytes = layout.narrow ? "" : "link ";
    out += label(`${inBytes}up`, layout.up) + label("compute", layout.computeTop) + label(`${inBytes}down`, layout.down);
    if (data.computeLanes > laneCount)
      out += text("", layout.left - 8, layout.computeBottom - 8, "end", `+${data.computeLanes - laneCount} lanes`);
    return out;
  }

  function drawStalls() {
    let out = "";
    // Stalls come longest first, so the first to find room are the ones worth a label. A leader runs from its label down
    // to the lane and may not cross another label on its way, nor may a label sit on a leader.
    const placed = [];
    const fits = (start, end, row, centre) =>
      placed.every((other) => {
        if (other.row === row) return start > other.end + 8 || end < other.start - 8;
        const [upper, lower] = other.row < row ? [other, { start, end }] : [{ centre }, other];
        return upper.centre < lower.start - 6 || upper.centre > lower.end + 6;
      });
    for (let i = 0; i < stalls.at.length && placed.length < 9; ++i) {
      const from = Math.max(stalls.at[i], view.from);
      const to = Math.min(stallEnd(i), view.to);
      if (to <= from) continue;
      const content = `${time(stalls.duration[i])}  ${shorten(buffers[stalls.buffer[i]][0], layout.narrow ? 18 : 30)}`;
      const width = content.length * 7.4 + 8;
      const centre = x((from + to) / 2);
      const start = Math.min(Math.max(centre - width / 2, layout.left), layout.right - width);
      let row = labelRows - 1;
      while (row >= 0 && !fits(start, start + width, row, centre)) --row;
      if (row < 0) continue;
      placed.push({ start, end: start + width, row, centre });
      const baseline = layout.labels + (row + 1) * labelRowHeight - 3;
      out += line("leader", centre, baseline + 4, centre, laneTop(stalls.lane[i]));
      out += drawConnector(i) + text("stall-label halo", start + width / 2, baseline, "middle", content);
    }
    return out;
  }
  // From the end of the transfer that was waited for to the start of the node that waited.
  function drawConnector(stall) {
    const transfer = stalls.transfer[stall];
    if (transfer < 0) return "";
    const fromX = x(transfers.end[transfer]);
    const toX = x(stallEnd(stall));
    if (Math.max(fromX, toX) < layout.left || Math.min(fromX, toX) > layout.right) return "";
    const fromY = transfers.up[transfer] ? layout.up + laneHeight : layout.down;
    const toY = laneTop(stalls.lane[stall]) + (transfers.up[transfer] ? 0 : laneHeight);
    const middle = (fromY + toY) / 2;
    return `<path class="connector" d="M${fromX.toFixed(1)} ${fromY}C${fromX.toFixed(1)} ${middle} ${toX.toFixed(1)} ${middle} ${toX.toFixed(1)} ${toY}"/>`;
  }

  // What the mouse is on, and, where that has a buffer, all transfers of the buffer and the stalls that waited for it.
  function drawHovered() {
    if (!hovered) return "";
    let out = "";
    const mark = (start, end, top, height) => {
      const a = x(Math.max(start, view.from)), b = x(Math.min(end, view.to));
      return b < layout.left || a > layout.right || b < a ? "" : rect("mark", a - 1, top - 1, Math.max(b - a, 2) + 2, height + 2, ' rx="3"');
    };
    if (hovered.kind === "compute") {
      const i = hovered.index;
      return mark(compute.start[i], compute.end[i], laneTop(compute.lane[i]), laneHeight);
    }
    const buffer = hovered.kind === "stall" ? stalls.buffer[hovered.index] : transfers.buffer[hovered.index];
    for (let i = 0; i < transfers.start.length; ++i)
      if (transfers.buffer[i] === buffer) out += mark(transfers.start[i], transfers.end[i], transfers.up[i] ? layout.up : layout.down, laneHeight);
    for (let i = 0; i < stalls.at.length; ++i)
      if (stalls.buffer[i] === buffer)
        out += drawConnector(i) + mark(stalls.at[i], stallEnd(i), laneTop(stalls.lane[i]), laneHeight);
    return out;
  }
  const laneTop = (lane) => layout.computeTop + drawnLane(lane) * (laneHeight + 3);

  function drawAxis() {
    const span = view.to - view.from;
    const step = niceStep(span, layout.narrow ? 3 : 8);
    const [size, unit] = view.to >= 2e6 ? [1e6, "s"] : view.to >= 2e3 ? [1e3, "ms"] : [1, "µs"];
    const digits = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
    let out = "";
    for (let tick = Math.ceil(view.from / step - 1e-9) * step; tick <= view.to * (1 + 1e-12); tick += step) {
      const at = x(tick);
      out += line("grid", at, layout.memory.top, at, layout.axis);
      const anchor = at > layout.right - 30 ? "end" : "middle";
      out += text("", anchor === "end" ? layout.right : at, layout.axis + 16, anchor, `${(tick / size).toFixed(digits)} ${unit}`);
    }
    return out;
  }

  // The whole step in one strip: where the stalls are and which part is shown above.
  function drawMinimap() {
    const whole = view;
    const top = layout.minimap, height = 16;
    view = { from: 0, to: totalUs };
    let out = rect("track", layout.left, top, layout.right - layout.left, height, ' rx="3"');
    out += drawBlocks("stall", stalls.at.length, (i) => stalls.at[i], stallEnd, top + 3, height - 6);
    const a = x(whole.from), b = x(whole.to);
    view = whole;
    out += rect("minimap-window", a, top, Math.max(b - a, 2), height);
    out += line("minimap-edge", a, top, a, top + height) + line("minimap-edge", b, top, b, top + height);
    return out + text("", layout.left - 8, top + 12.5, "end", layout.narrow ? "all" : "whole step");
  }

  let queued = false;
  function redraw() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      layout = makeLayout();
      host.innerHTML =
        `<svg width="${layout.width}" height="${layout.height}" viewBox="0 0 ${layout.width} ${layout.height}" role="img" aria-label="device memory, link and compute lanes over time">` +
        `<clipPath id="window"><rect x="${layout.left}" y="0" width="${layout.right - layout.left + 1}" height="${layout.height}"/></clipPath>` +
        drawAxis() + drawMemory() + drawLanes() + `<g clip-path="url(#window)">${drawStalls()}${drawHovered()}</g>` + drawMinimap() + "</svg>";
    });
  }

  // ---- moving about -----------------------------------------------------------------------------------------------
  const isWhole = () => view.to - view.from >= totalUs * 0.9999;
  function show(from, to) {
    const smallest = Math.min(1, totalUs / 1e5);
    const span = Math.min(Math.max(to - from, smallest), totalUs);
    const start = Math.min(Math.max(from, 0), totalUs - span);
    view = { from: start, to: start + span };
    redraw();
  }
  function zoom(factor, around = (view.from + view.to) / 2) {
    show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }
  function showStall(stall) {
    const transfer = stalls.transfer[stall];
    const start = Math.min(stalls.at[stall], transfer < 0 ? Infinity : transfers.start[transfer]);
    const end = stallEnd(stall);
    const span = Math.max(end - start, 1e-3);
    hovered = { kind: "stall", index: stall };
    show(start - span * 0.6, end + span * 0.6);
  }
  document.getElementById("zoom-in").onclick = () => zoom(0.5);
  document.getElementById("zoom-out").onclick = () => zoom(2);
  document.getElementById("zoom-reset").onclick = () => show(0, totalUs);
  host.addEventListener("wheel", (event) => {
    // A whole step cannot get smaller: let the page scroll on.
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && !isWhole()) {
      event.preventDefault();
      const shift = (event.deltaX / (layout.right - layout.left)) * (view.to - view.from);
      show(view.from + shift, view.to + shift);
    } else if (event.deltaY < 0 || (event.deltaY > 0 && !isWhole())) {
      event.preventDefault();
      zoom(Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY / 300))), timeAt(position(event)[0]));
    }
  }, { passive: false });
  host.addEventListener("keydown", (event) => {
    const step = (view.to - view.from) / 5;
    const actions = {
      ArrowLeft: () => show(view.from - step, view.to - step), ArrowRight: () => show(view.from + step, view.to + step),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(0, totalUs),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });

  let drag = null;
  const position = (event) => {
    const box = host.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  host.addEventListener("pointerdown", (event) => {
    const [px, py] = position(event);
    if (py >= layout.minimap) {
      const centre = ((px - layout.left) / (layout.right - layout.left)) * totalUs;
      const half = (view.to - view.from) / 2;
      show(centre - half, centre + half);
      return;
    }
    drag = { px, view };
    host.setPointerCapture(event.pointerId);
    host.classList.add("dragging");
  });
  host.addEventListener("pointermove", (event) => {
    const [px, py] = position(event);
    if (drag) {
      const shift = ((drag.px - px) / (layout.right - layout.left)) * (drag.view.to - drag.view.from);
      show(drag.view.from + shift, drag.view.to + shift);
      return;
    }
    hover(px, py, event);
  });
  for (const name of ["pointerup", "pointercancel"])
    host.addEventListener(name, () => { drag = null; host.classList.remove("dragging"); });
  host.addEventListener("pointerleave", () => { if (!drag) setHovered(null); });
  host.addEventListener("dblclick", () => show(0, totalUs));

  // ---- what is under the mouse ------------------------------------------------------------------------------------
  function nearest(count, startOf, endOf, at) {
    const reach = ((view.to - view.from) / (layout.right - layout.left)) * 2; // two pixels
    let best = -1, bestDistance = reach;
    for (let i = 0; i < count; ++i) {
      const distance = Math.max(startOf(i) - at, at - endOf(i), 0);
      if (distance < bestDistance || (distance === 0 && best < 0)) [best, bestDistance] = [i, distance];
      if (best >= 0 && bestDistance === 0) break;
    }
    return best;
  }
  function find(px, py) {
    if (px < layout.left || px > layout.right) return null;
    const at = timeAt(px);
    const inLane = (top) => py >= top && py < top + laneHeight;
    for (const [style, top] of [["up", layout.up], ["down", layout.down]]) {
      if (!inLane(top)) continue;
      const members = transferIndex[style];
      const i = nearest(members.length, (k) => transfers.start[members[k]], (k) => transfers.end[members[k]], at);
      return i < 0 ? null : { kind: "transfer", index: members[i] };
    }
    for (let lane = 0; lane < laneCount; ++lane) {
      if (!inLane(laneTop(lane))) continue;
      const members = nodesOfLane[lane], waits = stallsOfLane[lane];
      const node = nearest(members.length, (k) => compute.start[members[k]], (k) => compute.end[members[k]], at);
      const stall = nearest(waits.length, (k) => stalls.at[waits[k]], (k) => stallEnd(waits[k]), at);
      const onNode = node >= 0 && compute.start[members[node]] <= at && at <= compute.end[members[node]];
      if (stall >= 0 && !onNode) return { kind: "stall", index: waits[stall] };
      return node < 0 ? null : { kind: "compute", index: members[node] };
    }
    return null;
  }
  const inFull = (name) => (names[name].length > 1 ? `<br>${escape(shorten(names[name][1], 240))}` : "");
  function describe({ kind, index: i }) {
    if (kind === "compute")
      return `<b>${escape(names[compute.name[i]][0])}</b>${inFull(compute.name[i])}<br>node ${compute.node[i]}${compute.again[i] ? ", run again" : ""}, ${time(compute.end[i] - compute.start[i])}, at ${time(compute.start[i])}`;
    if (kind === "transfer") {
      const [name, size] = buffers[transfers.buffer[i]];
      const us = transfers.end[i] - transfers.start[i];
      const rate = us > 0 ? `, ${(transfers.bytes[i] / us / 1e3).toFixed(1)} GB/s` : "";
      return `<b>${transfers.up[i] ? "prefetch" : "evict"} ${escape(name)}</b><br>${bytes(transfers.bytes[i])} of ${bytes(size)} from byte ${transfers.offset[i]}, ${time(us)}${rate}, at ${time(transfers.start[i])}`;
    }
    const [name, size] = buffers[stalls.buffer[i]];
    const transfer = stalls.transfer[i];
    const what = transfer < 0 ? "" : transfers.up[transfer] ? " to arrive" : " to make room";
    return `<b>stall of ${time(stalls.duration[i])}</b> at ${time(stalls.at[i])}<br>node ${stalls.node[i]} ${escape(names[stalls.name[i]][0])}<br>waits for <b>${escape(name)}</b> (${bytes(size)})${what}`;
  }
  function hover(px, py, event) {
    setHovered(find(px, py));
    if (py > layout.memory.top && py < layout.memory.bottom && px > layout.left && px < layout.right) {
      const at = timeAt(px);
      const valueAt = ([times, values], end) => {
        if (at > end) return null;
        let low = 0, high = times.length;
        while (low < high) { const mid = (low + high) >> 1; if (times[mid] <= at) low = mid + 1; else high = mid; }
        return low ? values[low - 1] : 0;
      };
      const before = valueAt(data.before, data.inMemoryUs);
      tip.innerHTML = `<b>${bytes(valueAt(data.after, Infinity) ?? 0)}</b> on the device at ${time(at)}` +
        (before === null ? "" : `<br>${bytes(before)} without PumpGraph`);
      tip.hidden = false;
    }
    if (tip.hidden) return;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18}px`;
  }
  function setHovered(what) {
    const changed = (hovered && hovered.kind) !== (what && what.kind) || (hovered && hovered.index) !== (what && what.index);
    hovered = what;
    tip.hidden = !what;
    if (what) tip.innerHTML = describe(what);
    if (changed) redraw();
  }

  // ---- the table --------------------------------------------------------------------------------------------------
  document.querySelectorAll("button[data-stall]").forEach((button) => {
    button.onclick = () => {
      showStall(+button.dataset.stall);
      host.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    };
  });
  // page.html#stall-0 opens at the longest stall: something to point a colleague at.
  function followHash() {
    const match = /^#stall-(\d+)$/.exec(location.hash);
    if (match && +match[1] < stalls.at.length) showStall(+match[1]);
  }
  addEventListener("hashchange", followHash);
  followHash();
  new ResizeObserver(redraw).observe(host);
  redraw();
})();
