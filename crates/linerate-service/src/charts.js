"use strict";
// Polls data.json, which names its schema, and draws what it has. Counters become rates here.
const KEPT = 300, INTERVAL = 1000, samples = [], $ = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const made = (name, text, kind) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (kind) node.className = kind;
  return node;
};
const scaled = (value, unit) => {
  for (const [factor, prefix] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= factor) return (value / factor).toFixed(2) + " " + prefix + unit;
  return (value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)) + " " + unit;
};
const count = value => value.toLocaleString("en").replace(/,/g, "\u202f");
// The growth of a counter a second at each sample; null where there is no sample before.
const rates = of => samples.map((now, at) => {
  const before = samples[at - 1], seconds = before && now.time - before.time;
  if (!before || seconds > 5 * INTERVAL / 1000) return null;
  return Math.max(0, (of(now) ?? 0) - (of(before) ?? 0)) / seconds;
});
const values = of => samples.map(now => of(now) ?? null);
const last = list => list[list.length - 1] ?? 0;
const named = (list, name) => list.find(one => one.name === name)?.packets;
// Lines for the names that ever counted, those that count most first.
const lines = (names, of) => names
  .filter(name => of(last(samples), name) > 0)
  .map(name => ({ name, points: rates(now => of(now, name)) }))
  .sort((a, b) => Math.max(...b.points) - Math.max(...a.points)).slice(0, 4);

// Causes that are events and not losses; they are not in the total.
const EVENTS = ["freezes", "cut", "unknown_namespace", "sampled", "out_of_order"];
const capture = now => {
  const causes = Object.keys(now.dropped).filter(name => name !== "total");
  const packets = rates(one => one.captured), lost = rates(one => one.dropped.total);
  return {
    title: "capture",
    about: now.interfaces.map(one => `${one.name}: ${one.source} (${one.reason})`).join("; "),
    tiles: [["packets", scaled(last(packets), "pps")], ["bits", scaled(8 * last(rates(one => one.bytes)), "b/s")],
      ["captured", count(now.captured)], ["lost", count(now.dropped.total)],
      ["ring", (100 * now.ring_fill).toFixed(0) + " % full"],
      ...(now.writer_fill === null ? [] : [["writer", (100 * now.writer_fill).toFixed(0) + " % full"]])],
    charts: [["Packets", "pps", [{ name: "captured", points: packets }, { name: "lost", points: lost, kind: "peer0" }]],
      ["Bits", "b/s", [{ name: "captured", points: rates(one => 8 * one.bytes) }]],
      ["Drops by cause", "pps", lines(causes.filter(name => !EVENTS.includes(name)), (one, name) => one.dropped[name])]],
    tables: [["Interfaces", ["interface", "source", "received", "captured", "lost"],
      now.interfaces.map(one => [one.name, one.source, one.received, one.captured, one.dropped.total])],
      ["Drops by cause", ["cause", "packets"], causes.filter(name => now.dropped[name]).map(name => [name, now.dropped[name]])],
      ["Receive queues", ["interface", "queue", "received", "lost"], now.interfaces.flatMap(one =>
        one.queues.map(queue => [one.name, String(queue.queue), queue.received, queue.dropped.total]))]],
  };
};
const forward = now => {
  const datapaths = Object.keys(now.datapaths);
  const packets = (one, name) => name === "kernel"
    ? one.reasons.reduce((sum, reason) => sum + (reason.name === "denied" ? 0 : reason.packets), 0)
    : one.datapaths[name]?.packets;
  const byPath = [...(now.statistics === "none" ? [] : datapaths), "kernel"].map((name, at) =>
    ({ name, points: rates(one => packets(one, name)), kind: name === "kernel" ? "peer0" : "ours" + at }));
  const reasons = now.reasons.map(one => one.name), refusals = now.refusals.map(one => one.name);
  const both = (key, one) => one.ports.reduce((sum, port) => sum + port[key], 0);
  const states = { starting: "starting", running: "running", unattended: "no daemon", "fail-open": "failed open to the kernel" };
  const rows = (kind, title) => [title, ["reason", "rate", "packets"], now[kind].filter(one => one.packets)
    .map(one => [one.name, scaled(last(rates(then => named(then[kind], one.name))), "pps"), one.packets])
    .sort((a, b) => b[2] - a[2])];
  const side = one => (one.datapath ?? "kernel") + (one.reason ? ` (${one.reason})` : "");
  return {
    title: "forward", about: `${now.instance}: ${states[now.state]}`,
    tiles: [["received", scaled(last(rates(one => both("rx_packets", one))), "pps")],
      ["sent", scaled(8 * last(rates(one => both("tx_bytes", one))), "b/s")], ["sessions", count(now.sessions.active)],
      ["table", (100 * now.sessions.active / Math.max(1, now.sessions.capacity)).toFixed(1) + " % full"],
      ["blocked", count(now.blocked)]],
    charts: [["Packets by datapath", "pps", byPath],
      ["Slow path by reason", "pps", lines(reasons, (one, name) => named(one.reasons, name))],
      ["Sessions", "", [{ name: "sessions", points: values(one => one.sessions.active) }]],
      ["Learn refusals", "pps", lines(refusals, (one, name) => named(one.refusals, name))]],
    tables: [["Ports", ["port", "in by", "out by", "received", "sent"],
      now.ports.map(one => [one.interface, side(one.ingress), side(one.egress), one.rx_packets, one.tx_packets])],
      rows("reasons", "Slow path by reason"), rows("refusals", "Learn refusals"),
      ["Datapaths", ["datapath", "sessions", "packets"], datapaths.map(name =>
        [name, now.datapaths[name].sessions, now.datapaths[name].packets])]],
  };
};
const VIEWS = { "linerate-capture-stats-1": capture, "linerate-forward-stats-1": forward };

// A step of 1, 2 or 5 times a power of ten.
const step = top => {
  const power = 10 ** Math.floor(Math.log10(top / 4));
  return power * [1, 2, 5, 10].find(one => one * power * 4 >= top);
};
const chart = (figure, title, unit, series) => {
  const width = Math.max(240, figure.clientWidth - 34), height = Math.min(260, Math.max(180, width / 3)), font = 12;
  const svg = document.createElementNS(SVG, "svg"), left = 84, right = width - 8, top = 10, bottom = height - 24;
  const add = (name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    svg.append(node);
    return node;
  };
  svg.setAttribute("class", "chart live");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("font-size", font);
  svg.setAttribute("role", "img");
  const largest = Math.max(...series.flatMap(one => one.points).filter(Number.isFinite), 0) || 1, tick = step(largest);
  const end = last(samples).time, span = Math.max(30, end - samples[0].time);
  const x = time => right - (end - time) / span * (right - left);
  const y = value => bottom - value / (Math.ceil(largest / tick) * tick) * (bottom - top);
  for (let value = 0; value <= Math.ceil(largest / tick) * tick + tick / 2; value += tick) {
    add("path", { class: "grid", d: `M${left} ${y(value)}L${right} ${y(value)}` });
    add("text", { class: "tick", x: left - 7, y: y(value) + 4, "text-anchor": "end" }, scaled(value, unit));
  }
  add("path", { class: "axis", d: `M${left} ${bottom}L${right} ${bottom}` });
  add("text", { class: "tick", x: left, y: height - 7 }, Math.round(span) + " s ago");
  add("text", { class: "tick", x: right, y: height - 7, "text-anchor": "end" }, "now");
  series.forEach((one, number) => {
    let path = "", pen = "M";
    one.points.forEach((value, at) => {
      // A missing point leaves a gap.
      if (value === null) return void (pen = "M");
      path += pen + x(samples[at].time).toFixed(1) + " " + y(value).toFixed(1);
      pen = "L";
    });
    one.kind ??= (one.name === "lost" ? "peer" : "ours") + number % 4;
    const group = add("g", { class: "series " + one.kind }), line = document.createElementNS(SVG, "path");
    line.setAttribute("class", "line");
    line.setAttribute("d", path || "M0 0");
    group.append(line);
  });
  const words = series.map(one => `${one.name} ${scaled(last(one.points) ?? 0, unit)}`);
  svg.setAttribute("aria-label", `${title}: ${words.join(", ") || "none"}`);
  const names = made("p", undefined, "sub key");
  series.forEach((one, number) => names.append(made("span", words[number], "named " + one.kind)));
  if (!series.length) names.append("none so far");
  figure.replaceChildren(made("h2", title), svg, names);
};
const table = (title, head, rows) => {
  const section = made("figure"), scroll = made("div", undefined, "scroll"), node = made("table");
  const row = (cells, name) => {
    const line = made("tr");
    line.append(...cells.map(cell => made(name, typeof cell === "number" ? count(cell) : cell,
      typeof cell === "number" ? "n" : "")));
    return line;
  };
  const top = made("thead"), body = made("tbody");
  top.append(row(head, "th"));
  body.append(...rows.map(cells => row(cells, "td")));
  node.append(top, body);
  scroll.append(node);
  section.append(made("h2", title), rows.length ? scroll : made("p", "none so far", "sub"));
  return section;
};
const draw = () => {
  const now = last(samples), view = VIEWS[now.schema](now);
  document.title = `${view.about.split(":")[0]} · linerate ${view.title}`;
  $("title").textContent = "linerate " + view.title;
  $("about").textContent = view.about;
  $("tiles").replaceChildren(...view.tiles.map(([name, value]) => {
    const tile = made("div", undefined, "tile");
    tile.append(made("span", name, "sub"), made("strong", value));
    return tile;
  }));
  view.charts.forEach(([title, unit, series], at) => {
    const figure = $("charts").children[at] ?? $("charts").appendChild(made("figure"));
    chart(figure, title, unit, series);
  });
  $("tables").replaceChildren(...view.tables.map(one => table(...one)));
  document.body.dataset.samples = samples.length;
};
const poll = async () => {
  let said = "live", kind = "yes";
  try {
    const answer = await fetch("data.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`HTTP status ${answer.status}`);
    const sample = await answer.json();
    if (sample === null) [said, kind] = ["no data yet", "open"];
    else if (!VIEWS[sample.schema]) throw new Error(`unknown data: ${sample.schema}`);
    else {
      if (!samples.length || sample.time !== last(samples).time) samples.push(sample);
      if (samples.length > KEPT) samples.shift();
      draw();
    }
  } catch (error) {
    [said, kind] = [`no data: ${error.message}`, "no"];
  }
  $("state").textContent = said;
  $("state").className = "badge " + kind;
  setTimeout(poll, INTERVAL);
};
addEventListener("resize", () => samples.length && draw());
poll();
