"use strict";
// What the page does with its data. Names reach the page through textContent and fillText alone.
(() => {
  const began = performance.now();
  const byId = (id) => document.getElementById(id);
  const failed = (error) => {
    const notice = byId("failure");
    notice.hidden = false;
    notice.textContent = `The page could not be drawn: ${error}. The data in it may be damaged.`;
    console.error(error);
  };
  // What is thrown outside of what is caught below; an event without an error is a warning of the browser.
  window.addEventListener("error", ({ error }) => { if (error) failed(error); });

  // --- elements and texts -------------------------------------------------------------------------------------------

  const element = (tag, properties = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (value === undefined) continue;
      if (key === "class") made.className = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== undefined && child !== null));
    return made;
  };

  // Control characters, and those that turn the direction of text, are shown and not obeyed.
  const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff]/g;
  const shown = (text) =>
    text.replace(HIDDEN, (c) => {
      if (c === "\t" || c === "\n") return " ";
      return `\u27e8U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
    });
  const shortened = (text, most) => {
    if (text.length <= most) return text;
    const head = Math.ceil((most - 1) * 0.6);
    return `${text.slice(0, head)}\u2026${text.slice(text.length - (most - 1 - head))}`;
  };
  const count = (value) => Math.round(value).toLocaleString("en-US");
  const scaled = (value, units) => {
    let [size, unit] = units[0];
    for (const [bound, name] of units) if (value >= bound) [size, unit] = [bound, name];
    const number = value / size;
    const digits = size === 1 ? (Number.isInteger(value) ? 0 : 1) : number >= 100 ? 1 : number >= 10 ? 2 : 3;
    return [number.toFixed(digits), unit];
  };
  const timeParts = (ns) => scaled(ns, [[1, "ns"], [1e3, "\u00b5s"], [1e6, "ms"], [1e9, "s"]]);
  const byteParts = (bytes) => scaled(bytes, [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"]]);
  const time = (ns) => timeParts(ns).join(" ");
  const bytes = (value) => byteParts(value).join(" ");
  const rate = (moved, ns) => (ns > 0 ? `${scaled(moved / ns * 1e9, [[1, "B/s"], [1e3, "kB/s"], [1e6, "MB/s"], [1e9, "GB/s"]]).join(" ")}` : "");
  const DECIMAL = [["", 1], ["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12]];
  const decimal = (value, unit) => scaled(value, DECIMAL.map(([prefix, size]) => [size, `${prefix}${unit}`])).join(" ").trim();
  // A value of a sampler, in what its unit is best read in.
  const measured = (value, unit) => {
    if (unit === "percent") return `${value.toFixed(1)} %`;
    if (unit === "bytes") return bytes(value);
    if (unit === "bytes_per_second") return decimal(value, "B/s");
    if (unit === "hertz") return decimal(value, "Hz");
    if (unit === "nanoseconds") return time(value);
    if (unit === "joules") return decimal(value, "J");
    if (unit === "watts") return `${value.toFixed(1)} W`;
    if (unit === "celsius") return `${value.toFixed(0)} \u00b0C`;
    if (unit === "flags") return `0x${Math.round(value).toString(16)}`;
    return Math.abs(value) < 1000 ? String(+value.toPrecision(4)) : decimal(value, "");
  };
  const percent = (part, whole) => {
    const share = whole > 0 ? 100 * part / whole : 0;
    return share > 0 && share < 0.05 ? "< 0.1 %" : `${share.toFixed(1)} %`;
  };
  const plural = (number, what, many = `${what}s`) => `${count(number)} ${number === 1 ? what : many}`;
  const withUnit = ([number, unit]) => [number, element("span", { class: "unit" }, unit)];

  // --- data ---------------------------------------------------------------------------------------------------------

  const data = JSON.parse(byId("data").textContent);
  byId("data").remove();
  const names = data.names.map((name) => (name === "" ? "(empty name)" : shown(name)));
  const session = Math.max(data.duration_ns, 1);

  const summed = (deltas, Type = Float64Array) => {
    const values = new Type(deltas.length);
    let value = 0;
    for (let i = 0; i < deltas.length; i++) values[i] = value += deltas[i];
    return values;
  };
  const tableOf = (start, ns) => {
    const end = new Float64Array(start.length);
    for (let i = 0; i < end.length; i++) end[i] = ns[i] < 0 ? session : start[i] + ns[i];
    return { length: start.length, start, end, ns };
  };

  const R = tableOf(summed(data.ranges.start_delta), data.ranges.ns);
  R.parent = new Int32Array(R.length);
  for (let i = 0; i < R.length; i++) R.parent[i] = data.ranges.parent_back[i] ? i - data.ranges.parent_back[i] : -1;
  R.node = data.ranges.node;
  R.thread = data.ranges.thread;
  R.color = new Map(data.ranges.colors);
  R.details = new Map(data.ranges.details);
  R.open = new Set(data.ranges.open);
  R.nameOf = (i) => data.nodes[R.node[i]].name;

  const C = tableOf(summed(data.calls.start_delta), data.calls.ns);
  C.kind = data.calls.kind;
  C.thread = data.calls.thread;
  C.range = summed(data.calls.range_delta, Int32Array).map((row) => row - 1);
  C.captured = new Set(data.calls.captured);
  C.failed = new Map(data.calls.failed);
  C.nameOf = (i) => data.call_kinds[C.kind[i]][0];
  C.classOf = (i) => data.call_kinds[C.kind[i]][1];

  const O = tableOf(summed(data.operations.start_delta), data.operations.ns);
  O.work = data.operations.work;
  O.stream = data.operations.stream;
  O.call = summed(data.operations.call_delta, Int32Array).map((row) => row - 1);
  O.captured = new Map(data.operations.captured_in);
  O.bytes = new Float64Array(O.length);
  O.kindOf = (i) => data.works[O.work[i]][0];
  O.nameOf = (i) => data.works[O.work[i]][1];
  O.rangeOf = (i) => (O.call[i] < 0 ? -1 : C.range[O.call[i]]);
  for (let i = 0, next = 0; i < O.length; i++) {
    const kind = O.kindOf(i);
    if (kind !== 0) O.bytes[i] = data.operations.bytes[next++];
  }
  // The operations of a call, for its arrows: rows by call.
  const caused = { first: new Int32Array(C.length + 1), rows: new Int32Array(O.length) };
  for (let i = 0; i < O.length; i++) if (O.call[i] >= 0) caused.first[O.call[i] + 1]++;
  for (let i = 0; i < C.length; i++) caused.first[i + 1] += caused.first[i];
  {
    const next = caused.first.slice();
    for (let i = 0; i < O.length; i++) if (O.call[i] >= 0) caused.rows[next[O.call[i]]++] = i;
  }
  const operationsOf = (call) => caused.rows.subarray(caused.first[call], caused.first[call + 1]);

  const P = tableOf(Float64Array.from(data.process_ranges.start_ns), data.process_ranges.ns);
  P.nameOf = (i) => data.process_ranges.name[i];
  const M = tableOf(Float64Array.from(data.marks.at_ns), new Float64Array(data.marks.at_ns.length));
  M.nameOf = (i) => data.marks.name[i];

  // Tracks of samplers: several may have the same times.
  const stretches = data.track_times.map(({ start_delta, gaps, end, samples }) => {
    const start = summed(start_delta);
    const until = new Float64Array(start.length);
    for (let i = 0; i < until.length; i++) until[i] = i + 1 < start.length ? start[i + 1] : end;
    for (const [row, at] of gaps) until[row] = at;
    return { start, end: until, samples: (row) => (samples === null ? 1 : samples[row]) };
  });
  // What lowers clocks, by NVML's bits; those of SLOWS are no matter of the program.
  const REASONS = "nvml__clock_event_reasons";
  const reasons = [[0x1, "idle"], [0x2, "clocks set by applications"], [0x4, "power limit"], [0x8, "hardware slowdown"], [0x10, "sync boost"],
    [0x20, "heat"], [0x40, "heat (hardware)"], [0x80, "power brake"], [0x100, "display clocks"]];
  const SLOWS = 0xec;
  const trackText = (track, value) => {
    const text = measured(value, track.unit);
    if (track.name !== REASONS) return text;
    const names = reasons.filter(([bit]) => Math.round(value) & bit).map(([, name]) => name);
    return `${names.length ? names.join(", ") : "none"} (${text})`;
  };
  const isCalledAs = (track) => (other) => other !== track && other.device === track.device && other.label === track.label;
  const tracks = data.tracks.map((track, index) => {
    const { start, end, samples } = stretches[track.times];
    const value = Float64Array.from(track.value);
    const [least, most] = [track.least ?? track.value, track.most ?? track.value].map((column) => Float64Array.from(column));
    const top = track.unit === "percent" ? 100 : most.reduce((top, value) => Math.max(top, value), 0);
    const label = data.tracks.some(isCalledAs(track)) ? `${track.label} (${track.source})` : track.label;
    return { ...track, index, label: shown(label), name: shown(track.name), start, end, samples, value, least, most, top };
  });

  const pathOf = (node) => {
    const path = [];
    for (let row = node + 1; row; row = data.nodes[row - 1].parent) path.unshift(names[data.nodes[row - 1].name]);
    return path.join("/");
  };
  const processLabels = new Map(data.processes.map(({ id, label }) => [id, shown(label)]));
  const processLabel = (process) => processLabels.get(process) ?? (process ? `process ${process}` : "");
  const threadName = ({ id, name }) => (name === null ? `Thread ${id}` : `${names[name]} (${id})`);
  const threadLabel = (thread) => {
    const label = processLabel(data.threads[thread].process);
    return `${threadName(data.threads[thread])}${label ? `, ${label}` : ""}`;
  };
  const areSeveral = new Set(tracks.map(({ device }) => device)).size > 1;
  const trackLabel = ({ label, device }) => (areSeveral ? `${label}, GPU ${device}` : label);
  const busyShare = (id) => {
    const device = data.devices.find((device) => device.id === id);
    return percent(device?.busy.busy_ns ?? 0, device?.clock_ns || data.clock_ns);
  };
  const deviceName = (id) => data.devices.find((device) => device.id === id)?.name;
  const streams = data.streams.map(([process, device, context, stream]) => ({ process, device, context, stream }));
  const differs = (device, part) => new Set(streams.filter((stream) => stream.device === device).map((stream) => stream[part])).size > 1;
  const streamLabel = ({ process, device, context, stream }) =>
    `Stream ${stream}${differs(device, "context") ? `, ctx ${context}` : ""}${differs(device, "process") ? `, ${processLabel(process)}` : ""}`;

  // Work may go on after the stop.
  const latest = (table) => table.end.reduce((last, end) => Math.max(last, end), 0);
  const whole = Math.max(session, latest(R), latest(C), latest(O), latest(P), ...tracks.map(latest));

  // --- colours ------------------------------------------------------------------------------------------------------

  const isDark = () => document.documentElement.dataset.theme === "dark";
  const OPERATIONS = [
    ["Kernel", "#2f6db5", "#4d8fdb"], ["Copy host to device", "#2c7d4f", "#4fae78"], ["Copy device to host", "#b4532a", "#dd8457"],
    ["Copy device to device", "#7650b0", "#a486dc"], ["Copy peer to peer", "#a13f7d", "#d479b2"], ["Other copy", "#5f6b76", "#8f9ba6"],
    ["Memset", "#7a7223", "#b9af52"], ["CUDA graph", "#23697a", "#52a3b9"],
  ];
  const CALLS = {
    "launch": ["Launch", "#8fb4dd", "#3d628a"], "graph launch": ["Graph launch", "#6f97cf", "#4a75a8"],
    "host function": ["Host function", "#c0c7ce", "#4b545d"],
    "copy": ["Copy call", "#a5cfb2", "#3e6b50"], "memset": ["Memset call", "#d3cd93", "#66602d"],
    "sync": ["Synchronise", "#e08a80", "#a14a43"], "wait event": ["Wait event", "#e6bfa0", "#7a5538"],
    "query": ["Query", "#c7cdd3", "#4b545d"], "alloc": ["Allocate", "#c9b3e3", "#5f4a80"],
    "free": ["Free", "#dccdec", "#52446a"], "other": ["Other call", "#c7cdd3", "#4b545d"],
  };
  const HUES = [205, 150, 40, 270, 95, 330, 180, 15];
  const hex = (value) => [value >> 16 & 255, value >> 8 & 255, value & 255];
  const fromHsl = (h, s, l) => {
    const a = s * Math.min(l, 1 - l);
    const part = (n) => {
      const k = (n + h / 30) % 12;
      return Math.round(255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
    };
    return [part(0), part(8), part(4)];
  };
  const luminance = ([r, g, b]) => {
    const linear = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  // A fill and the ink that reads best on it.
  const paint = (rgb) => {
    const light = luminance(rgb);
    return { fill: `rgb(${rgb.join(" ")})`, ink: 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 ? "#ffffff" : "#0d1116" };
  };
  const hashOf = (name) => Math.imul(name + 1, 0x9e3779b1) >>> 0;
  let paints = new Map();
  const cached = (key, make) => {
    let found = paints.get(key);
    if (found === undefined) paints.set(key, found = make());
    return found;
  };
  const fromHex = (text) => hex(parseInt(text.slice(1), 16));
  const operationPaint = (i) => {
    const kind = O.kindOf(i);
    if (kind !== 0) return cached(`o${kind}`, () => paint(fromHex(OPERATIONS[kind][isDark() ? 2 : 1])));
    // Kernels are one family: names differ a little.
    const shade = hashOf(O.nameOf(i)) >>> 16;
    return cached(`k${shade % 7}`, () => paint(fromHsl(203 + shade % 7 * 3, 0.56, (isDark() ? 0.50 : 0.36) + shade % 7 * 0.025)));
  };
  const callPaint = (i) => cached(`c${C.classOf(i)}`, () => paint(fromHex((CALLS[C.classOf(i)] ?? CALLS.other)[isDark() ? 2 : 1])));
  const namedPaint = (name) => {
    const hue = HUES[(hashOf(name) >>> 20) % HUES.length];
    return cached(`n${hue}`, () => paint(isDark() ? fromHsl(hue, 0.26, 0.31) : fromHsl(hue, 0.45, 0.85)));
  };
  const rangePaint = (i) => {
    const color = R.color.get(i);
    return color === undefined ? namedPaint(R.nameOf(i)) : cached(`r${color}`, () => paint(hex(color)));
  };
  const busyPaint = () => cached("busy", () => paint(isDark() ? [86, 104, 122] : [148, 165, 183]));
  const trackColor = ({ index }, alpha) => {
    const [r, g, b] = cached(`t${index % HUES.length}`, () => fromHsl(HUES[index % HUES.length], 0.55, isDark() ? 0.62 : 0.40));
    return `rgb(${r} ${g} ${b} / ${alpha})`;
  };
  const markPaint = () => cached("mark", () => paint(isDark() ? [234, 189, 102] : [138, 90, 0]));

  // --- timeline: rows -----------------------------------------------------------------------------------------------

  // First place in a sorted array that is not below, or that is above.
  const firstFrom = (sorted, value, low = 0, high = sorted.length) => {
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (sorted[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const firstAbove = (sorted, value, low = 0, high = sorted.length) => {
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (sorted[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  // What overlaps goes to rows below each other; what nests is nested, for an outer one begins first or is longer.
  const packed = (table, rows) => {
    const order = Int32Array.from(rows);
    const { start, end } = table;
    let sorted = true;
    for (let i = 1; i < order.length && sorted; i++) {
      const [a, b] = [order[i - 1], order[i]];
      sorted = start[a] < start[b] || (start[a] === start[b] && end[a] >= end[b]);
    }
    if (!sorted) order.sort((a, b) => start[a] - start[b] || end[b] - end[a] || a - b);
    const lanes = [];
    const until = [];
    for (const row of order) {
      let lane = 0;
      while (lane < until.length && until[lane] > start[row]) lane++;
      if (lane === until.length) lanes.push([]);
      until[lane] = end[row];
      lanes[lane].push(row);
    }
    return lanes;
  };

  const lanes = [];
  const groups = [];
  const addLane = (group, type, table, rows, height, label, paintOf, nameOf) => {
    const length = rows.length;
    const lane = {
      type, table, base: height, height, label, paintOf, nameOf, length, y: 0, index: lanes.length,
      rows: Int32Array.from(rows), start: new Float64Array(length), end: new Float64Array(length),
      before: new Float64Array(length + 1), hits: null,
    };
    table.lane ??= new Int32Array(table.length).fill(-1);
    for (let i = 0; i < length; i++) {
      lane.start[i] = table.start[rows[i]];
      lane.end[i] = table.end[rows[i]];
      lane.before[i + 1] = lane.before[i] + lane.end[i] - lane.start[i];
      table.lane[rows[i]] = lane.index;
    }
    lanes.push(lane);
    group.lanes.push(lane);
  };
  const addTrack = (group, track) => {
    const lane = {
      type: "track", track, base: 34, height: 34, label: track.label, length: track.start.length, y: 0, index: lanes.length,
      rows: Int32Array.from(track.start.keys()), start: track.start, end: track.end, before: null, hits: null,
    };
    lanes.push(lane);
    group.lanes.push(lane);
  };
  const addGroup = (label, more) => {
    const group = { label, lanes: [], isFolded: false, y: 0, height: 0, ...more };
    groups.push(group);
    return group;
  };
  const addPacked = (group, type, table, rows, height, label, paintOf, nameOf) => {
    packed(table, rows).forEach((lane, i) => addLane(group, type, table, lane, height, i === 0 ? label : "", paintOf, nameOf));
  };
  const split = (length, keyOf, keys) => {
    const parts = Array.from({ length: keys }, () => []);
    for (let i = 0; i < length; i++) parts[keyOf(i)].push(i);
    return parts;
  };

  const addProcessRanges = (group, rows) => {
    addPacked(group, "process", P, rows, 20, "Start/end", (i) => namedPaint(P.nameOf(i)), P.nameOf);
  };
  if (P.length && data.processes.length === 0) addProcessRanges(addGroup("Ranges of the process", {}), [...P.start.keys()]);
  {
    const ranges = split(R.length, (i) => R.thread[i], data.threads.length);
    const calls = split(C.length, (i) => C.thread[i], data.threads.length);
    const marks = split(M.length, (i) => data.marks.thread[i], data.threads.length);
    const addThread = (group, thread, prefix) => {
      addPacked(group, "range", R, ranges[thread], 20, `${prefix}Ranges`, rangePaint, R.nameOf);
      if (marks[thread].length) addLane(group, "mark", M, marks[thread], 14, `${prefix}Marks`, markPaint, M.nameOf);
      addPacked(group, "call", C, calls[thread], 20, `${prefix}CUDA API`, callPaint, C.nameOf);
    };
    // Of several processes each is a group; of one, each thread.
    const started = new Map(data.processes.map(({ id }) => [id, []]));
    data.process_ranges.thread.forEach((thread, i) => started.get(data.threads[thread].process)?.push(i));
    for (const { id } of data.processes) {
      const group = addGroup(processLabel(id), { process: id });
      if (started.get(id).length) addProcessRanges(group, started.get(id));
      data.threads.forEach((row, thread) => {
        if (row.process === id) addThread(group, thread, `${threadName(row)}: `);
      });
    }
    if (data.processes.length === 0) data.threads.forEach((_, thread) => addThread(addGroup(threadLabel(thread), {}), thread, ""));
  }
  const timed = (i) => O.ns[i] >= 0;
  const hasTime = ({ type, row }) => type !== "operation" || timed(row);
  {
    const devices = [...new Set([...streams, ...tracks].map(({ device }) => device))].sort((a, b) => a - b);
    const operations = split(O.length, (i) => O.stream[i], streams.length);
    for (const device of devices) {
      const rows = [...streams.keys()].filter((row) => streams[row].device === device);
      const order = ({ process, context, stream }) => [process, context, stream];
      rows.sort((a, b) => order(streams[a]).map((part, i) => part - order(streams[b])[i]).find((less) => less !== 0) ?? 0);
      const all = [];
      for (let i = 0; i < O.length; i++) if (streams[O.stream[i]].device === device && timed(i)) all.push(i);
      const busy = { start: [], end: [], last: [], first: [] };
      for (const i of all) {
        const last = busy.end.length - 1;
        if (last >= 0 && O.start[i] <= busy.end[last]) {
          if (O.end[i] > busy.end[last]) [busy.end[last], busy.last[last]] = [O.end[i], i];
        } else {
          busy.start.push(O.start[i]);
          busy.end.push(O.end[i]);
          busy.first.push(i);
          busy.last.push(i);
        }
      }
      const B = { length: busy.start.length, start: Float64Array.from(busy.start), end: Float64Array.from(busy.end), first: busy.first, last: busy.last };
      const name = deviceName(device);
      const group = addGroup(name === undefined ? `GPU ${device}` : `GPU ${device} \u00b7 ${shown(name)}`, { busy: B, device });
      if (B.length) addLane(group, "busy", B, [...B.start.keys()], 16, "In use and gaps", busyPaint, () => -1);
      for (const row of rows) {
        addPacked(group, "operation", O, operations[row].filter(timed), 22, streamLabel(streams[row]), operationPaint, O.nameOf);
      }
      for (const track of tracks) if (track.device === device && track.start.length) addTrack(group, track);
    }
  }

  // --- timeline: drawing --------------------------------------------------------------------------------------------

  const scroller = byId("scroller");
  const extent = byId("extent");
  const canvas = byId("canvas");
  const ruler = byId("ruler");
  const overview = byId("overview");
  const tip = byId("tip");
  const HEADING = 22;
  const RULER = 22;
  const OVERVIEW = 34;
  const FONT = getComputedStyle(document.documentElement).getPropertyValue("--mono").trim();
  const SMALL = `11px ${FONT}`;
  const LABEL = "12px system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";
  const MOST = whole * 1.02;
  const view = { from: -whole * 0.01, to: whole * 1.01, gutter: 176, width: 0, height: 0, plot: 1, content: 0 };
  const LEAST = Math.min(100, whole);
  let colors = {};
  let glyph = 6.6;
  let selected = null;
  let hovered = null;
  let search = null;
  let dragged = null;

  const xOf = (t) => view.gutter + (t - view.from) * view.plot / (view.to - view.from);
  const tOf = (x) => view.from + (x - view.gutter) * (view.to - view.from) / view.plot;

  const sized = (target, width, height) => {
    const ratio = window.devicePixelRatio || 1;
    target.width = Math.round(width * ratio);
    target.height = Math.round(height * ratio);
    target.style.width = `${width}px`;
    target.style.height = `${height}px`;
    const context = target.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
  };

  const layOut = () => {
    // With the panel beside it, as high as a panel needs; few rows are drawn higher then.
    const least = byId("selection").offsetLeft > 50 ? 340 : 90;
    const open = groups.filter((group) => !group.isFolded).flatMap((group) => group.lanes);
    const room = least - groups.length * (HEADING + 5);
    const growth = Math.min(1.45, Math.max(1, room / open.reduce((sum, lane) => sum + lane.base, 1)));
    for (const lane of open) lane.height = Math.round(lane.base * growth);
    let y = 0;
    for (const group of groups) {
      group.y = y;
      y += HEADING;
      if (!group.isFolded) {
        for (const lane of group.lanes) {
          lane.y = y;
          y += lane.height;
        }
        y += 5;
      }
      group.height = y - group.y;
    }
    view.content = y;
    extent.style.height = `${y}px`;
    view.height = Math.max(least, Math.min(y, Math.max(240, Math.round(window.innerHeight * 0.58))));
    scroller.style.height = `${view.height}px`;
    view.width = scroller.clientWidth;
    view.gutter = view.width < 640 ? 104 : 176;
    view.plot = Math.max(50, view.width - view.gutter - 8);
    sized(canvas, view.width, view.height);
    sized(ruler, byId("plot").clientWidth, RULER);
    sized(overview, byId("plot").clientWidth, OVERVIEW);
    draw();
  };

  const clampView = () => {
    let span = Math.min(Math.max(view.to - view.from, LEAST), MOST);
    const middle = (view.from + view.to) / 2;
    let from = middle - span / 2;
    from = Math.min(Math.max(from, -whole * 0.01), whole * 1.01 - span);
    view.from = from;
    view.to = from + span;
  };
  const show = (from, to) => {
    [view.from, view.to] = [from, to];
    clampView();
    draw();
  };
  const zoom = (factor, at = (view.from + view.to) / 2) => {
    const span = Math.min(Math.max((view.to - view.from) * factor, LEAST), MOST);
    const share = (at - view.from) / (view.to - view.from);
    show(at - span * share, at - span * share + span);
  };
  const pan = (share) => {
    const by = (view.to - view.from) * share;
    show(view.from + by, view.to + by);
  };

  let frame = 0;
  const frames = { count: 0, longest: 0, total: 0 };
  const draw = () => {
    if (frame === 0) {
      frame = requestAnimationFrame(() => {
        frame = 0;
        const since = performance.now();
        drawNow();
        const took = performance.now() - since;
        frames.count++;
        frames.total += took;
        frames.longest = Math.max(frames.longest, took);
      });
    }
  };

  // One row, at most a few strokes a pixel: what is narrower than a pixel is drawn as how much of the pixel it covers.
  const drawLane = (context, lane, y) => {
    const { start, end, rows, before, length, hits } = lane;
    const scale = view.plot / (view.to - view.from);
    const height = lane.height - 2;
    const right = view.gutter + view.plot + 8;
    const dim = search !== null && lane.type !== "busy";
    // A context takes its time over a style that is set again.
    let [alpha, style] = [1, null];
    let lastPixel = -1;
    const brush = (newAlpha, newStyle) => {
      if (newAlpha !== alpha) context.globalAlpha = alpha = newAlpha;
      if (newStyle !== style) context.fillStyle = style = newStyle;
    };
    let i = firstAbove(end, view.from);
    // A mark has no length, so its end is its start.
    if (lane.type === "mark") i = firstFrom(start, view.from);
    while (i < length && start[i] <= view.to) {
      const x = view.gutter + (start[i] - view.from) * scale;
      const wide = (end[i] - start[i]) * scale;
      if (lane.type === "mark") {
        const next = Math.max(i + 1, firstFrom(start, start[i] + 1 / scale, i + 1));
        brush(dim && hits[next] === hits[i] ? 0.25 : 1, lane.paintOf(rows[i]).fill);
        context.beginPath();
        const middle = y + height / 2;
        context.moveTo(x, middle - 5);
        context.lineTo(x + 4, middle);
        context.lineTo(x, middle + 5);
        context.lineTo(x - 4, middle);
        context.fill();
        i = next;
        continue;
      }
      if (wide >= 1.5) {
        const left = Math.max(x, view.gutter);
        const width = Math.min(x + wide, right) - left;
        const { fill, ink } = lane.paintOf(rows[i]);
        const isHit = dim && hits[i + 1] > hits[i];
        brush(dim && !isHit ? 0.22 : 1, fill);
        context.fillRect(left, y, wide > 4 ? width - 0.75 : width, height);
        if (isHit && width > 3) {
          context.strokeStyle = colors.hit;
          context.lineWidth = 1.5;
          context.strokeRect(left + 0.75, y + 0.75, width - 2.25, height - 1.5);
        }
        const room = Math.floor((width - 8) / glyph);
        if (room >= 3 && lane.type !== "busy") {
          const name = names[lane.nameOf(rows[i])];
          brush(alpha, ink);
          context.fillText(name.length > room ? `${name.slice(0, room - 1)}\u2026` : name, left + 4, y + height / 2 + 0.5);
        }
        i++;
        continue;
      }
      // All that is in this pixel, the next after the last that was drawn; a last one that is wider is drawn by itself.
      const pixel = Math.max(Math.floor(x), Math.floor(view.gutter), lastPixel + 1);
      const from = view.from + (pixel - view.gutter) / scale;
      const to = view.from + (pixel + 1 - view.gutter) / scale;
      if (end[i] < from) {
        i++;
        continue;
      }
      let next = firstFrom(start, to, i + 1);
      if (next > i + 1 && (end[next - 1] - start[next - 1]) * scale >= 1.5) next--;
      let longest = i;
      for (let j = i + 1; j < next && j < i + 8; j++) if (end[j] - start[j] > end[longest] - start[longest]) longest = j;
      const isHit = dim && hits[next] > hits[i];
      const cut = Math.max(0, from - start[i]) + Math.max(0, end[next - 1] - to);
      const covered = Math.min(1, (before[next] - before[i] - cut) * scale);
      brush(dim ? (isHit ? 1 : 0.16) : 0.35 + 0.65 * Math.round(covered * 12) / 12, isHit ? colors.hit : lane.paintOf(rows[longest]).fill);
      context.fillRect(pixel, y, 1, height);
      lastPixel = pixel;
      i = end[next - 1] > to ? next - 1 : next;
    }
    context.globalAlpha = 1;
  };

  // A sampler's values: of each pixel the mean by time, and behind it, lighter, the most. Nothing where nothing is known. A
  // state is a line in steps.
  const drawTrack = (context, { track, height, length }, y) => {
    const { start, end, value, most } = track;
    const isFlags = track.unit === "flags";
    const scale = view.plot / (view.to - view.from);
    const width = Math.ceil(view.plot) + 8;
    const area = new Float64Array(width);
    const covered = new Float64Array(width);
    const peak = new Float64Array(width);
    for (let i = firstAbove(end, view.from); i < length && start[i] <= view.to; i++) {
      const from = Math.max(0, (start[i] - view.from) * scale);
      const to = Math.min(width, (end[i] - view.from) * scale);
      const last = Math.min(width - 1, Math.floor(to));
      for (let x = Math.floor(from); x <= last; x++) {
        const part = Math.min(to, x + 1) - Math.max(from, x);
        if (part <= 0) continue;
        area[x] += value[i] * part;
        covered[x] += part;
        if (isFlags) peak[x] |= value[i];
        else if (most[i] > peak[x]) peak[x] = most[i];
      }
    }
    const floor = y + height - 3;
    // Flags are there or not; of reasons for lower clocks those are low that are nobody's trouble.
    const flag = (value) => (value === 0 ? 0 : track.name !== REASONS || Math.round(value) & SLOWS ? 1 : 0.3);
    const high = (share) => (height - 6) * (isFlags ? flag(share) : Math.min(1, Math.max(0, share / (track.top || 1))));
    const fill = (heightOf, alpha) => {
      context.fillStyle = trackColor(track, alpha);
      context.beginPath();
      for (let x = 0; x < width; ) {
        if (covered[x] === 0) {
          x++;
          continue;
        }
        const h = heightOf(x);
        let next = x + 1;
        while (next < width && covered[next] > 0 && heightOf(next) === h) next++;
        if (h > 0) context.rect(view.gutter + x, floor - h, next - x, h);
        x = next;
      }
      context.fill();
    };
    const mean = (x) => Math.round(high(isFlags ? peak[x] : area[x] / covered[x]) * 2) / 2;
    const isState = track.kind === "state" && !isFlags;
    fill((x) => Math.round(high(peak[x]) * 2) / 2, isState ? 0.08 : 0.28);
    if (!isState) fill(mean, isFlags ? 0.5 : 0.62);
    // The line tells a value of 0 from none.
    context.strokeStyle = trackColor(track, 1);
    context.lineWidth = isState ? 1.5 : 1;
    context.beginPath();
    let isOpen = false;
    for (let x = 0; x < width; x++) {
      if (covered[x] === 0) isOpen = false;
      else {
        const h = floor - mean(x);
        if (!isOpen) context.moveTo(view.gutter + x, h);
        context.lineTo(view.gutter + x, h);
        context.lineTo(view.gutter + x + 1, h);
        isOpen = true;
      }
    }
    context.stroke();
  };

  const drawGaps = (context, group, top) => {
    const { start, end, length } = group.busy;
    const bottom = group.isFolded ? HEADING : group.height - 5;
    const scale = view.plot / (view.to - view.from);
    const least = 3 / scale;
    context.font = SMALL;
    for (let i = Math.max(0, firstAbove(end, view.from) - 1); i + 1 < length && end[i] <= view.to; i++) {
      if (start[i + 1] - end[i] < least) continue;
      const left = Math.max(xOf(end[i]), view.gutter);
      const right = Math.min(xOf(start[i + 1]), view.gutter + view.plot + 8);
      if (right <= left) continue;
      context.fillStyle = colors.gap;
      context.fillRect(left, group.y - top + HEADING, right - left, bottom - HEADING);
      if (!group.isFolded) {
        context.fillStyle = colors.gapLine;
        context.fillRect(left, group.y - top + HEADING + 6, right - left, 1);
        const text = time(start[i + 1] - end[i]);
        if (right - left > text.length * glyph + 12) {
          const middle = (left + right) / 2;
          const half = text.length * glyph / 2;
          context.fillStyle = colors.panel;
          context.fillRect(middle - half - 3, group.y - top + HEADING, half * 2 + 6, 13);
          context.fillStyle = colors.gap;
          context.fillRect(middle - half - 3, group.y - top + HEADING, half * 2 + 6, 13);
          context.fillStyle = colors.muted;
          context.fillText(text, middle - half, group.y - top + HEADING + 7);
        }
      }
    }
  };

  const ticks = () => {
    const span = view.to - view.from;
    const rough = span / Math.max(2, view.plot / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
    const found = [];
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) found.push(t);
    return { found, step };
  };
  const tickText = (t, step) => {
    const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]].find(([size]) => Math.max(Math.abs(t), step) >= size) ?? [1, "ns"];
    const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
    return `${(t / size).toFixed(digits)} ${unit}`;
  };

  const fitted = (context, text, width) => {
    if (context.measureText(text).width <= width) return text;
    let kept = text.slice(0, Math.max(1, Math.floor(width / 5)));
    while (kept.length > 1 && context.measureText(`${kept}\u2026`).width > width) kept = kept.slice(0, -1);
    return `${kept}\u2026`;
  };

  const drawNow = () => {
    if (view.width === 0) return;
    const context = canvas.getContext("2d");
    const top = scroller.scrollTop;
    const { found, step } = ticks();
    context.fillStyle = colors.panel;
    context.fillRect(0, 0, view.width, view.height);
    context.textBaseline = "middle";

    // The time before the session and after it, and when it was off.
    context.fillStyle = colors.raised;
    const [zero, last] = [xOf(0), xOf(session)];
    if (zero > view.gutter) context.fillRect(view.gutter, 0, zero - view.gutter, view.height);
    if (last < view.width) context.fillRect(Math.max(last, view.gutter), 0, view.width - last, view.height);
    for (const [from, to] of data.pauses_ns) {
      const left = Math.max(xOf(from), view.gutter);
      if (xOf(to) > left) context.fillRect(left, 0, Math.max(1, xOf(to) - left), view.height);
    }
    context.fillStyle = colors.line;
    for (const t of found) context.fillRect(Math.round(xOf(t)), 0, 1, view.height);

    context.fillStyle = colors.strongLine;
    context.fillRect(view.gutter - 1, 0, 1, view.height);
    for (const group of groups) {
      const y = group.y - top;
      if (y + HEADING < 0 || y > view.height) continue;
      context.fillStyle = colors.raised;
      context.fillRect(0, y, view.width, HEADING - 2);
      context.fillStyle = colors.ink;
      context.font = `600 ${LABEL}`;
      const note = group.busy?.length ? ` \u2014 ${busyShare(group.device)} busy` : "";
      context.fillText(fitted(context, `${group.isFolded ? "\u25b8" : "\u25be"}  ${group.label}${note}`, view.width - 16), 8, y + HEADING / 2 - 1);
    }
    context.save();
    context.beginPath();
    context.rect(view.gutter, 0, view.width - view.gutter, view.height);
    context.clip();
    for (const group of groups) {
      if (group.y + group.height < top || group.y > top + view.height) continue;
      if (group.busy) drawGaps(context, group, top);
      context.font = SMALL;
      if (group.isFolded) continue;
      for (const lane of group.lanes) {
        if (lane.y + lane.height < top || lane.y > top + view.height) continue;
        if (lane.type === "track") drawTrack(context, lane, lane.y - top + 1);
        else drawLane(context, lane, lane.y - top + 1);
      }
    }
    drawSelection(context, top);
    context.restore();

    context.font = LABEL;
    for (const group of groups) {
      if (group.isFolded || group.y + group.height < top || group.y > top + view.height) continue;
      context.fillStyle = colors.muted;
      for (const lane of group.lanes) {
        const middle = lane.y - top + lane.height / 2;
        if (lane.label) context.fillText(fitted(context, lane.label, view.gutter - 32), 24, lane.type === "track" ? middle - 7 : middle);
        if (lane.type === "track" && lane.track.unit !== "flags") {
          context.font = SMALL;
          context.fillText(fitted(context, `0 \u2013 ${measured(lane.track.top, lane.track.unit)}`, view.gutter - 32), 24, middle + 8);
          context.font = LABEL;
        }
      }
    }
    drawRuler(found, step);
    drawOverview();
    byId("window").textContent = `${time(view.to - view.from)} shown`;
  };

  const drawRuler = (found, step) => {
    const context = ruler.getContext("2d");
    const width = ruler.clientWidth;
    context.fillStyle = colors.panel;
    context.fillRect(0, 0, width, RULER);
    context.font = SMALL;
    context.textBaseline = "middle";
    for (const t of found) {
      const x = Math.round(xOf(t));
      if (x < view.gutter) continue;
      context.fillStyle = colors.line;
      context.fillRect(x, 0, 1, RULER);
      context.fillStyle = colors.muted;
      context.fillText(tickText(t, step), x + 4, RULER / 2 + 1);
    }
    if (dragged?.what === "ruler") {
      const [from, to] = [dragged.x, dragged.now].sort((a, b) => a - b);
      context.fillStyle = colors.accentFill;
      context.fillRect(from, 0, to - from, RULER);
      context.fillStyle = colors.accent;
      context.fillText(time(tOf(to) - tOf(from)), from + 4, RULER / 2 + 1);
    }
    context.fillStyle = colors.panel;
    context.fillRect(0, 0, view.gutter - 1, RULER);
    context.fillStyle = colors.muted;
    context.font = LABEL;
    context.fillText("Time", 8, RULER / 2 + 1);
    context.fillStyle = colors.strongLine;
    context.fillRect(view.gutter - 1, 0, 1, RULER);
  };

  // How much each GPU was in use, by collectives too, in every pixel's share of the session; drawn once for a width and a theme.
  const busyness = { key: "", picture: document.createElement("canvas") };
  const overviewX = (t) => view.gutter + t / whole * view.plot;
  const drawBusyness = () => {
    const key = `${view.width} ${view.plot} ${colors.accent} ${window.devicePixelRatio}`;
    if (busyness.key === key) return;
    busyness.key = key;
    const context = sized(busyness.picture, overview.clientWidth, OVERVIEW);
    context.fillStyle = colors.panel;
    context.fillRect(0, 0, overview.clientWidth, OVERVIEW);
    context.fillStyle = colors.muted;
    context.font = LABEL;
    context.textBaseline = "middle";
    context.fillText("GPU in use", 8, OVERVIEW / 2);
    context.fillStyle = colors.accent;
    const shown = groups.filter((group) => group.busy);
    const each = (OVERVIEW - 8) / Math.max(1, shown.length);
    const width = Math.floor(view.plot);
    shown.forEach(({ lanes }, row) => {
      const lane = lanes.find(({ type }) => type === "busy");
      const floor = 4 + each * (row + 1);
      const upTo = (t) => {
        const i = firstFrom(lane.end, t);
        return lane.before[i] + (i < lane.length ? Math.max(0, t - lane.start[i]) : 0);
      };
      for (let x = 0, before = 0; lane && x < width; x++) {
        const now = upTo((x + 1) / width * whole);
        const height = Math.max(1, (now - before) * width / whole * (each - 1));
        if (now > before) context.fillRect(view.gutter + x, floor - height, 1, height);
        before = now;
      }
    });
  };
  const drawOverview = () => {
    drawBusyness();
    const context = overview.getContext("2d");
    context.drawImage(busyness.picture, 0, 0, overview.clientWidth, OVERVIEW);
    const [from, to] = [overviewX(Math.max(0, view.from)), overviewX(Math.min(whole, view.to))];
    context.fillStyle = colors.veil;
    context.fillRect(view.gutter, 0, from - view.gutter, OVERVIEW);
    context.fillRect(to, 0, view.gutter + view.plot - to, OVERVIEW);
    context.strokeStyle = colors.accent;
    context.lineWidth = 1;
    context.strokeRect(from + 0.5, 0.5, Math.max(2, to - from - 1), OVERVIEW - 1);
    context.fillStyle = colors.strongLine;
    context.fillRect(view.gutter - 1, 0, 1, OVERVIEW);
  };

  // --- selection ----------------------------------------------------------------------------------------------------

  const tables = { range: R, call: C, operation: O, process: P, mark: M };
  const laneOf = (item) => {
    if (item.type === "track") return lanes[item.lane];
    const lane = tables[item.type]?.lane?.[item.row] ?? -1;
    return lane < 0 ? undefined : lanes[lane];
  };
  const groupOf = (lane) => groups.find((group) => group.lanes.includes(lane));
  // Where an item's row is drawn; a folded group's items are in its heading.
  const placeOf = (item) => {
    const lane = laneOf(item);
    if (lane === undefined) return undefined;
    const group = groupOf(lane);
    return group.isFolded ? { y: group.y, height: HEADING - 2 } : { y: lane.y, height: lane.height };
  };
  // What a range asked for, with ranges within it.
  let extentOf = { range: -1 };
  const workOf = (range) => {
    if (extentOf.range === range) return extentOf;
    const inside = new Int8Array(R.length).fill(-1);
    const isInside = (row) => {
      if (row < 0) return 0;
      const walked = [];
      let at = row;
      while (at >= 0 && inside[at] < 0 && at !== range) {
        walked.push(at);
        at = R.parent[at];
      }
      const answer = at < 0 ? 0 : at === range ? 1 : inside[at];
      for (const step of walked) inside[step] = answer;
      return answer;
    };
    const found = { range, operations: 0, gpu: 0, kernels: 0, from: Infinity, to: -Infinity, byDevice: new Map() };
    for (let i = 0; i < O.length; i++) {
      if (!isInside(O.rangeOf(i))) continue;
      found.operations++;
      found.kernels += O.kindOf(i) === 0 ? 1 : 0;
      if (!timed(i)) continue;
      found.gpu += O.ns[i];
      const { device } = streams[O.stream[i]];
      const span = found.byDevice.get(device) ?? [Infinity, -Infinity];
      found.byDevice.set(device, [Math.min(span[0], O.start[i]), Math.max(span[1], O.end[i])]);
    }
    found.calls = 0;
    found.syncs = 0;
    for (let i = 0; i < C.length; i++) {
      if (!isInside(C.range[i])) continue;
      found.calls++;
      if (C.classOf(i) === "sync" && C.ns[i] >= 0) found.syncs += C.ns[i];
    }
    return extentOf = found;
  };

  const spanOf = (item) => (item.type === "gap" || item.type === "track" ? [item.from, item.to] : [tables[item.type].start[item.row], tables[item.type].end[item.row]]);

  const outline = (context, item, top, strong) => {
    const place = placeOf(item);
    if (place === undefined) return;
    const [from, to] = spanOf(item);
    const left = Math.max(xOf(from), view.gutter - 4);
    const width = Math.min(xOf(to), view.width + 4) - left;
    if (width < -4) return;
    context.strokeStyle = strong ? colors.ink : colors.accent;
    context.lineWidth = strong ? 2 : 1.5;
    context.strokeRect(left - 0.5, place.y - top + 0.5, Math.max(width, 2), place.height - 1);
  };

  const ARROWS = 400;
  const drawSelection = (context, top) => {
    if (hovered !== null && hovered.type !== "gap") outline(context, hovered, top, false);
    if (selected === null) return;
    if (selected.type === "gap") {
      const group = selected.group;
      context.strokeStyle = colors.ink;
      context.lineWidth = 1.5;
      context.strokeRect(xOf(selected.from), group.y - top + HEADING, xOf(selected.to) - xOf(selected.from), group.height - HEADING - 5);
      return;
    }
    if (selected.type === "range") {
      // Where its work ran: nsys calls it the range's projection.
      for (const [device, [from, to]] of workOf(selected.row).byDevice) {
        const group = groups.find((group) => group.device === device && group.busy);
        if (!group || from > to) continue;
        context.fillStyle = colors.projection;
        context.fillRect(xOf(from), group.y - top + HEADING, Math.max(1, xOf(to) - xOf(from)), group.height - HEADING - 4);
        context.strokeStyle = colors.accent;
        context.lineWidth = 1;
        context.setLineDash([4, 3]);
        context.strokeRect(xOf(from), group.y - top + HEADING, Math.max(1, xOf(to) - xOf(from)), group.height - HEADING - 4);
        context.setLineDash([]);
      }
    }
    outline(context, selected, top, true);
    const pairs = [];
    if (selected.type === "operation" && O.call[selected.row] >= 0) pairs.push([O.call[selected.row], selected.row]);
    if (selected.type === "call") for (const row of operationsOf(selected.row).subarray(0, ARROWS)) pairs.push([selected.row, row]);
    for (const [call, operation] of pairs) {
      const from = placeOf({ type: "call", row: call });
      const to = placeOf({ type: "operation", row: operation });
      if (!from || !to) continue;
      const x0 = xOf(C.start[call]) + Math.min(4, (C.end[call] - C.start[call]) * view.plot / (view.to - view.from) / 2);
      const y0 = from.y - top + from.height - 1;
      const x1 = xOf(O.start[operation]);
      const y1 = to.y - top + 1;
      outline(context, selected.type === "call" ? { type: "operation", row: operation } : { type: "call", row: call }, top, false);
      const bend = Math.max(12, Math.abs(y1 - y0) / 2);
      context.strokeStyle = colors.accent;
      context.fillStyle = colors.accent;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1 - 4);
      context.stroke();
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x1 - 3.5, y1 - 6);
      context.lineTo(x1 + 3.5, y1 - 6);
      context.fill();
    }
  };

  const itemAt = (x, y) => {
    const at = y + scroller.scrollTop;
    if (x < view.gutter) return null;
    const group = groups.find((group) => at >= group.y && at < group.y + group.height);
    if (!group || group.isFolded || at < group.y + HEADING) return null;
    const lane = group.lanes.find((lane) => at >= lane.y && at < lane.y + lane.height);
    if (!lane) return null;
    const t = tOf(x);
    const near = 3 * (view.to - view.from) / view.plot;
    const reach = lane.type === "mark" ? near * 2 : near;
    let best = -1;
    let distance = Infinity;
    for (let i = firstFrom(lane.end, t - reach); i < lane.length && lane.start[i] <= t + reach; i++) {
      const away = Math.max(0, lane.start[i] - t, t - lane.end[i]);
      if (away < distance) [best, distance] = [i, away];
      if (away === 0) break;
    }
    if (lane.type === "track") return best >= 0 && distance === 0 ? sampleOf(lane, best) : null;
    if (lane.type === "busy") {
      if (best >= 0 && distance === 0) return null;
      const next = firstFrom(lane.start, t);
      if (next === 0 || next >= lane.length) return null;
      return gapAfter(group, next - 1);
    }
    return best < 0 ? null : { type: lane.type, row: lane.rows[best] };
  };
  const gapAfter = (group, i) => ({ type: "gap", group, row: i, from: group.busy.end[i], to: group.busy.start[i + 1] });

  const sampleOf = (lane, row) => ({ type: "track", lane: lane.index, row, from: lane.start[row], to: lane.end[row] });
  const nameOf = (item) => (item.type === "gap" ? "Gap on the GPU" : item.type === "track" ? lanes[item.lane].track.label : names[tables[item.type].nameOf(item.row)]);
  const same = (a, b) => a === b || (a !== null && b !== null && a.type === b.type && a.row === b.row && a.group === b.group && a.lane === b.lane);

  const select = (item, { reveal = false } = {}) => {
    selected = item;
    describe();
    if (item !== null && reveal) bringIntoView(item);
    byId("zoom-selection").disabled = item === null || !hasTime(item);
    draw();
  };
  const bringIntoView = (item, { fit = false } = {}) => {
    if (!hasTime(item)) return;
    const [from, to] = spanOf(item);
    const span = view.to - view.from;
    if (fit) {
      const room = Math.max((to - from) * 0.6, LEAST, 500);
      show(from - room, to + room);
    } else if (from < view.from || to > view.to) {
      const needed = Math.max(Math.min(span, MOST), (to - from) * 1.4);
      show((from + to) / 2 - needed / 2, (from + to) / 2 + needed / 2);
    } else if ((to - from) / span * view.plot < 3) {
      const wanted = Math.max((to - from) * 30, LEAST * 5);
      show((from + to) / 2 - wanted / 2, (from + to) / 2 + wanted / 2);
    }
    const lane = laneOf(item);
    if (!lane) return;
    const group = groupOf(lane);
    if (group.isFolded) {
      group.isFolded = false;
      layOut();
    }
    if (lane.y < scroller.scrollTop || lane.y + lane.height > scroller.scrollTop + view.height) {
      scroller.scrollTop = lane.y - view.height / 2;
    }
  };

  const jump = (item) => element("button", { type: "button", class: "link", onclick: () => select(item, { reveal: true }) }, shortened(nameOf(item), 300));
  const facts = (pairs, look) => {
    const list = element("dl", { class: look });
    for (const [label, value, type] of pairs) {
      if (value === undefined || value === null || value === "") continue;
      list.append(element("dt", {}, label), element("dd", type ? { class: type } : {}, value));
    }
    return list;
  };
  const KINDS = { range: "Range", call: "API call", process: "Range of the process", mark: "Mark", gap: "No work on the GPU", track: "Sampled" };
  const sampleText = ({ track }, row) => `${trackText(track, track.value[row])}, ${plural(track.samples(row), "sample")}`;

  const describe = () => {
    const panel = byId("selection");
    const box = element("div");
    panel.replaceChildren(box);
    if (selected === null) {
      box.append(element("p", { class: "muted" }, "Nothing selected. Click a range, a call, an operation or a gap for its details and what caused it."));
      return;
    }
    const { type, row } = selected;
    const [from, to] = spanOf(selected);
    const kind = type === "operation" ? OPERATIONS[O.kindOf(row)][0] : KINDS[type];
    box.append(element("h3", { class: "name" }, shortened(nameOf(selected), 5000)), element("span", { class: "muted" }, kind));
    const when = [["Start", hasTime(selected) ? `${(from / 1e6).toFixed(6)} ms` : "no timestamps"]];
    if (type === "range") describeRange(box, row, when);
    else if (type === "call") describeCall(box, row, when);
    else if (type === "operation") describeOperation(box, row, when);
    else if (type === "gap") describeGap(box, from, to, when);
    else if (type === "track") describeSample(box, lanes[selected.lane].track, row, when);
    else if (type === "process") {
      const activations = data.process_ranges.activations[row];
      box.append(facts([...when, ["Duration", time(P.ns[row])], ["Began on", threadLabel(data.process_ranges.thread[row])],
        ["Ended", data.process_ranges.open.includes(row) ? "not by the stop" : ""], ["Activations", count(activations.length)]]));
      if (activations.length) box.append(element("p", {}, "First activation: ", jump({ type: "range", row: activations[0] })));
    } else box.append(facts([...when, ["Thread", threadLabel(data.marks.thread[row])]]));
  };
  const describeRange = (box, row, when) => {
    const node = data.nodes[R.node[row]];
    const work = workOf(row);
    const all = [];
    for (const [key, value] of R.details.get(row) ?? []) all.push([names[key], names[value]]);
    box.append(facts([...when,
      ["Host time", time(R.ns[row])],
      ["GPU time", time(work.gpu)],
      ["GPU operations", `${count(work.operations)}, ${plural(work.kernels, "kernel")}`],
      ["API calls", count(work.calls)],
      ["Synchronising", work.syncs ? time(work.syncs) : ""],
      ["Path", pathOf(R.node[row]), "name"],
      ["Domain", node.domain === null ? "" : names[node.domain], "name"],
      ["Thread", threadLabel(R.thread[row])],
      ["Ended", R.open.has(row) ? "not by the stop" : ""],
      ["Instances", count(node.instances)],
      ...all]));
    if (R.parent[row] >= 0) box.append(element("p", {}, "In ", jump({ type: "range", row: R.parent[row] })));
    if (node.sampled !== undefined) {
      box.append(element("p", { class: "muted" }, node.instances > 1 ? `Sampled while the work of its ${plural(node.instances, "instance")} was on the GPU:` : "Sampled while its work was on the GPU:"));
      box.append(facts(node.sampled.map(([at, mean, samples]) => [trackLabel(tracks[at]), `${measured(mean, tracks[at].unit)} (${plural(samples, "sample")})`]), "halves"));
    }
  };
  const describeCall = (box, row, when) => {
    const operations = operationsOf(row);
    box.append(facts([...when,
      ["Host time", C.ns[row] < 0 ? "had not returned" : time(C.ns[row])],
      ["Does", C.classOf(row)],
      ["Result", C.failed.has(row) ? `error ${C.failed.get(row)}` : "success"],
      ["Captured", C.captured.has(row) ? "into a graph" : ""],
      ["Thread", threadLabel(C.thread[row])],
      ["Range", C.range[row] < 0 ? "none" : pathOf(R.node[C.range[row]]), "name"],
      ["Operations", row < data.calls.driver ? count(operations.length) : "those of the driver call that it made"]]));
    if (C.range[row] >= 0) box.append(element("p", {}, "In ", jump({ type: "range", row: C.range[row] })));
    for (const operation of operations.subarray(0, 8)) box.append(element("p", {}, "Caused ", jump({ type: "operation", row: operation })));
    if (operations.length > 8) box.append(element("p", { class: "muted" }, `and ${count(operations.length - 8)} more`));
  };
  const describeOperation = (box, row, when) => {
    const work = data.works[O.work[row]];
    const call = O.call[row];
    const range = O.rangeOf(row);
    const { process, device, context, stream } = streams[O.stream[row]];
    const xyz = (at) => work.slice(at, at + 3).map(count).join(" \u00d7 ");
    box.append(facts([...when,
      ["GPU time", timed(row) ? time(O.ns[row]) : ""],
      ["After its call", call >= 0 && timed(row) ? `${O.start[row] < C.start[call] ? "\u2212" : ""}${time(Math.abs(O.start[row] - C.start[call]))}` : ""],
      ...(work[0] === 0 ? [
        ["Grid", xyz(3)], ["Block", xyz(6)], ["Registers", `${count(work[9])} a thread`],
        ["Shared memory", `${bytes(work[10])} static, ${bytes(work[11])} dynamic`]] : []),
      ...(work[0] === 7 ? [["Executable graph", count(work[2])], ["In it", "not recorded: the graph was traced as one interval"]] : []),
      ...(work[0] !== 0 && work[0] !== 7 ? [["Bytes", bytes(O.bytes[row])], ["Rate", rate(O.bytes[row], O.ns[row])], ["Memory", work[1] === work[2] ? "" : names[work[2]]]] : []),
      ["GPU", `${device}${deviceName(device) ? `, ${shown(deviceName(device))}` : ""}`],
      ["Stream", `${stream}, context ${context}${process ? `, process ${process}` : ""}`],
      ["Range", range < 0 ? "none" : pathOf(R.node[range]), "name"],
      ["Handed over", range >= 0 && R.thread[range] !== C.thread[call] ? "its call was made on another thread" : ""],
      ["Compiled name", work[0] === 0 && work[1] !== work[2] ? names[work[2]] : "", "name"]]));
    if (call >= 0) box.append(element("p", {}, "Called by ", jump({ type: "call", row: call })));
    else box.append(element("p", { class: "muted" }, "Its call is not known."));
    if (range >= 0) box.append(element("p", {}, "In ", jump({ type: "range", row: range })));
    if (O.captured.has(row)) box.append(element("p", {}, "Its graph node was made in ", jump({ type: "range", row: O.captured.get(row) })));
  };
  const describeSample = (box, track, row, when) => {
    const samples = track.samples(row);
    box.append(facts([...when,
      ["Duration", time(track.end[row] - track.start[row])],
      [track.kind === "state" ? "State" : samples > 1 ? "Mean" : "Value", trackText(track, track.value[row])],
      ["Least", samples > 1 ? measured(track.least[row], track.unit) : ""],
      ["Most", samples > 1 ? measured(track.most[row], track.unit) : ""],
      ["Samples", count(samples)],
      ["Metric", track.name, "name"],
      ["By", `${track.source}, every ${time(track.interval_ns)}`],
      ["GPU", String(track.device)]]));
    box.append(element("p", { class: "muted" }, "In the whole session:"), facts(trackFacts(track)));
  };
  const trackFacts = (track) => [
    ["Mean", track.mean === null ? "not known" : measured(track.mean, track.unit)], ["Samples", count(track.count)],
    ["Time", time(track.covered_ns)]];
  // What the host did in a gap: calls and their overlap with it, by name.
  const describeGap = (box, from, to, when) => {
    const { group, row } = selected;
    const byName = new Map();
    for (let i = 0; i < C.length; i++) {
      const overlap = Math.min(to, C.end[i]) - Math.max(from, C.start[i]);
      if (overlap > 0) byName.set(C.nameOf(i), (byName.get(C.nameOf(i)) ?? 0) + overlap);
    }
    const calls = [...byName].sort(([, a], [, b]) => b - a);
    box.append(facts([...when, ["Duration", time(to - from)], ["Of the session", percent(to - from, session)], ["GPU", String(group.device)]]));
    const off = data.pauses_ns.reduce((sum, [start, end]) => sum + Math.max(0, Math.min(to, end) - Math.max(from, start)), 0);
    if (off > 0) box.append(element("p", {}, `The session was off for ${time(off)} of it: what ran then is not known.`));
    box.append(element("p", {}, "After ", jump({ type: "operation", row: group.busy.last[row] })));
    box.append(element("p", {}, "Before ", jump({ type: "operation", row: group.busy.first[row + 1] })));
    const next = O.call[group.busy.first[row + 1]];
    if (next >= 0) box.append(element("p", {}, "which was asked for by ", jump({ type: "call", row: next }), ` ${C.start[next] >= from ? `${time(C.start[next] - from)} into the gap` : "before the gap"}`));
    box.append(element("p", {}, calls.length ? "The host was in these calls meanwhile:" : "The host was in no recorded call meanwhile."));
    if (calls.length) box.append(facts(calls.slice(0, 8).map(([name, overlap]) => [names[name], time(overlap)])));
  };

  // --- search -------------------------------------------------------------------------------------------------------

  const SEARCHED = ["range", "call", "operation", "process", "mark"];
  const searchFor = (matches) => {
    search = null;
    for (const lane of lanes) lane.hits = null;
    if (matches !== null) {
      const hit = Uint8Array.from(names, (name, row) => (matches(name, row) ? 1 : 0));
      search = { found: 0, items: null, hit };
      for (const lane of lanes) {
        const hits = lane.hits = new Uint32Array(lane.length + 1);
        if (lane.type === "busy" || lane.type === "track") continue;
        for (let i = 0; i < lane.length; i++) hits[i + 1] = hits[i] + hit[lane.nameOf(lane.rows[i])];
        search.found += hits[lane.length];
      }
    }
    byId("matches").textContent = search === null ? "" : plural(search.found, "match", "matches");
    byId("previous").disabled = byId("next").disabled = search === null || search.found === 0;
    draw();
  };
  const step = (by) => {
    if (search === null || search.found === 0) return;
    if (search.items === null) {
      search.items = [];
      for (const lane of lanes) {
        if (!SEARCHED.includes(lane.type)) continue;
        for (let i = 0; i < lane.length; i++) if (lane.hits[i + 1] > lane.hits[i]) search.items.push([lane.start[i], lane.type, lane.rows[i]]);
      }
      search.items.sort((a, b) => a[0] - b[0]);
      search.at = by > 0 ? -1 : 0;
    }
    search.at = (search.at + by + search.items.length) % search.items.length;
    const [, type, row] = search.items[search.at];
    select({ type, row }, { reveal: true });
    byId("matches").textContent = `${count(search.at + 1)} of ${count(search.found)}`;
  };
  const searchByText = (text) => {
    const wanted = text.toLowerCase();
    searchFor(wanted === "" ? null : (name) => name.toLowerCase().includes(wanted));
  };
  // All that has this very name, as a table's row has it.
  const highlight = (name) => {
    byId("search").value = shortened(names[name], 200);
    searchFor((_, row) => row === name);
    if (search.found) step(1);
    byId("timeline").scrollIntoView({ block: "start" });
  };

  // --- what the hand does -------------------------------------------------------------------------------------------

  const listen = () => {
    const search = byId("search");
    let pending = 0;
    search.addEventListener("input", () => {
      clearTimeout(pending);
      pending = setTimeout(() => searchByText(search.value), 60);
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        step(event.shiftKey ? -1 : 1);
      }
    });
    byId("next").addEventListener("click", () => step(1));
    byId("previous").addEventListener("click", () => step(-1));
    byId("zoom-in").addEventListener("click", () => zoom(0.5));
    byId("zoom-out").addEventListener("click", () => zoom(2));
    byId("zoom-fit").addEventListener("click", () => show(-whole * 0.01, whole * 1.01));
    byId("zoom-selection").addEventListener("click", () => selected && bringIntoView(selected, { fit: true }));

    // A scroll of the page that began elsewhere goes on over the timeline, and does not zoom it.
    let wheel = { at: -Infinity, isOurs: false };
    window.addEventListener("wheel", (event) => {
      const isOver = scroller.contains(event.target) || event.target === ruler || event.target === overview;
      const isNew = event.timeStamp - wheel.at > 250;
      wheel = { at: event.timeStamp, isOurs: isNew ? isOver : wheel.isOurs && isOver };
      if (!wheel.isOurs) return;
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 300 : 1;
      const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
      if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) pan((dx || dy) / view.plot);
      else if (event.altKey) scroller.scrollTop += dy;
      else zoom(Math.exp(Math.max(-240, Math.min(240, dy)) * 0.0022), tOf(event.clientX - scroller.getBoundingClientRect().left));
    }, { passive: false });

    const local = (event, target) => {
      const box = target.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const [x, y] = local(event, canvas);
      dragged = { what: "canvas", x, y, from: view.from, to: view.to, top: scroller.scrollTop, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = local(event, canvas);
      if (dragged?.what === "canvas") {
        if (!dragged.moved && Math.hypot(x - dragged.x, y - dragged.y) < 4) return;
        dragged.moved = true;
        canvas.classList.add("dragging");
        tip.hidden = true;
        const by = (dragged.x - x) * (dragged.to - dragged.from) / view.plot;
        show(dragged.from + by, dragged.to + by);
        scroller.scrollTop = dragged.top + dragged.y - y;
        return;
      }
      const item = itemAt(x, y);
      canvas.classList.toggle("over", item !== null);
      if (!same(item, hovered)) {
        hovered = item;
        draw();
      }
      tip.hidden = item === null;
      if (item === null) return;
      const [from, to] = spanOf(item);
      tip.textContent = item.type === "track" ? `${nameOf(item)}  \u00b7  ${sampleText(lanes[item.lane], item.row)}  \u00b7  ${time(to - from)}` : item.type === "mark" ? shortened(nameOf(item), 160) : `${shortened(nameOf(item), 160)}  \u00b7  ${time(to - from)}`;
      const left = Math.min(x + 14, view.width - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(4, left)}px`;
      tip.style.top = `${y + OVERVIEW + RULER + 20}px`;
    });
    const release = (event) => {
      if (dragged?.what !== "canvas") return;
      const { moved, x, y } = dragged;
      dragged = null;
      canvas.classList.remove("dragging");
      if (moved || event.type === "pointercancel") return;
      const at = y + scroller.scrollTop;
      const heading = groups.find((group) => at >= group.y && at < group.y + HEADING);
      if (heading) {
        heading.isFolded = !heading.isFolded;
        layOut();
      } else select(itemAt(x, y));
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => {
      tip.hidden = true;
      if (hovered !== null) {
        hovered = null;
        draw();
      }
    });
    canvas.addEventListener("dblclick", () => selected && bringIntoView(selected, { fit: true }));

    ruler.addEventListener("pointerdown", (event) => {
      const [x] = local(event, ruler);
      dragged = { what: "ruler", x, now: x };
      ruler.setPointerCapture(event.pointerId);
    });
    ruler.addEventListener("pointermove", (event) => {
      if (dragged?.what !== "ruler") return;
      [dragged.now] = local(event, ruler);
      draw();
    });
    ruler.addEventListener("pointerup", () => {
      if (dragged?.what !== "ruler") return;
      const [from, to] = [dragged.x, dragged.now].sort((a, b) => a - b).map((x) => tOf(Math.max(x, view.gutter)));
      const isStretch = Math.abs(dragged.now - dragged.x) > 4;
      dragged = null;
      if (isStretch) show(from, to);
      else draw();
    });
    const moveWindow = (event) => {
      const [x] = local(event, overview);
      const [middle, span] = [(x - view.gutter) / view.plot * whole, view.to - view.from];
      show(middle - span / 2, middle + span / 2);
    };
    overview.addEventListener("pointerdown", (event) => {
      dragged = { what: "overview" };
      overview.setPointerCapture(event.pointerId);
      moveWindow(event);
    });
    overview.addEventListener("pointermove", (event) => dragged?.what === "overview" && moveWindow(event));
    overview.addEventListener("pointerup", () => dragged = null);

    scroller.addEventListener("scroll", draw);
    scroller.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const far = event.shiftKey ? 0.5 : 0.1;
      const keys = {
        ArrowLeft: () => pan(-far), ArrowRight: () => pan(far),
        ArrowUp: () => scroller.scrollTop -= event.shiftKey ? 160 : 40, ArrowDown: () => scroller.scrollTop += event.shiftKey ? 160 : 40,
        "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), _: () => zoom(1 / 0.7),
        0: () => show(-whole * 0.01, whole * 1.01), Home: () => show(0, view.to - view.from), End: () => show(whole - (view.to - view.from), whole),
        f: () => selected && bringIntoView(selected, { fit: true }), F: () => selected && bringIntoView(selected, { fit: true }),
        ",": () => neighbour(-1), ".": () => neighbour(1),
        Escape: () => select(null),
      };
      if (!(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
    let resizing = 0;
    new ResizeObserver(() => {
      cancelAnimationFrame(resizing);
      resizing = requestAnimationFrame(layOut);
    }).observe(byId("plot"));
  };
  const neighbour = (by) => {
    if (selected === null) {
      const first = lanes.find((lane) => lane.type !== "busy" && lane.type !== "track" && lane.length);
      if (first) select({ type: first.type, row: first.rows[0] }, { reveal: true });
      return;
    }
    if (selected.type === "gap") {
      const row = selected.row + by;
      if (row >= 0 && row + 1 < selected.group.busy.length) select(gapAfter(selected.group, row), { reveal: true });
      return;
    }
    const lane = laneOf(selected);
    if (!lane) return;
    const at = lane.rows.indexOf(selected.row) + by;
    if (lane.type === "track" && at >= 0 && at < lane.length) select(sampleOf(lane, at), { reveal: true });
    else if (at >= 0 && at < lane.length) select({ type: lane.type, row: lane.rows[at] }, { reveal: true });
  };

  // --- tables -------------------------------------------------------------------------------------------------------

  const PAGE = 300;
  const cell = (column, row) => {
    const value = column.value(row);
    const made = element("td", { class: column.class });
    if (value === null || value === undefined) return made;
    const content = column.show(value, row);
    made.append(...(Array.isArray(content) ? content : [content]));
    if (value === 0 && !column.class) made.className = "zero";
    if (column.part) made.style.setProperty("--part", `${(100 * column.part(row)).toFixed(2)}%`);
    return made;
  };
  const numbers = (label, value, title) => ({ label, title, value, show: (n) => count(n) });
  const times = (label, value, title) => ({ label, title, value, show: (ns) => withUnit(timeParts(ns)) });
  const sizes = (label, value, title) => ({ label, title, value, show: (n) => withUnit(byteParts(n)) });

  const heading = (column, state, sort) => {
    const head = element("th", { scope: "col", class: column.class === "text" ? "text" : undefined, "aria-sort": state.column === column ? (state.isDown ? "descending" : "ascending") : "none" });
    head.append(element("button", { type: "button", title: column.title, onclick: () => sort(column) }, column.label));
    return head;
  };
  const compare = (column, isDown) => (a, b) => {
    const [x, y] = [column.value(a), column.value(b)];
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return isDown ? -order : order;
  };

  // A table that sorts by a click on a heading and filters by text.
  const sheet = (section, { caption, columns, rows, textOf, sortedBy, empty, note }) => {
    const place = byId(section);
    if (rows.length === 0) {
      place.append(element("div", { class: "sheet" }, element("p", { class: "empty" }, empty)));
      return;
    }
    const state = { column: sortedBy, isDown: true, text: "", most: PAGE };
    const filter = element("input", { type: "search", class: "filter", placeholder: "Filter", "aria-label": `Filter ${caption}`, autocomplete: "off", spellcheck: "false" });
    const status = element("output", { "aria-live": "polite" });
    const head = element("tr");
    const body = element("tbody");
    const more = element("div", { class: "more-rows" });
    const title = place.querySelector("h2");
    const bar = element("div", { class: "bar" });
    place.insertBefore(bar, title);
    bar.append(title, element("div", { class: "tools" }, filter, status));
    place.append(element("div", { class: "sheet" }, element("table", {}, element("caption", {}, caption), element("thead", {}, head), body), more));
    const sort = (column) => {
      state.isDown = state.column === column ? !state.isDown : typeof column.value(rows[0]) !== "string";
      state.column = column;
      fill();
      head.children[columns.indexOf(column)].firstChild.focus();
    };
    const fill = () => {
      head.replaceChildren(...columns.map((column) => heading(column, state, sort)));
      const found = rows.filter((row) => textOf(row).toLowerCase().includes(state.text)).sort(compare(state.column, state.isDown));
      body.replaceChildren(...found.slice(0, state.most).map((row) => element("tr", {}, ...columns.map((column) => cell(column, row)))));
      status.textContent = state.text === "" ? note : `${count(found.length)} of ${count(rows.length)}`;
      more.hidden = found.length <= state.most;
      if (found.length === 0) body.append(element("tr", {}, element("td", { colspan: columns.length, class: "empty" }, "No name has this text in it.")));
      more.replaceChildren(`${count(state.most)} of ${count(found.length)} rows are shown. `, element("button", {
        type: "button",
        onclick: () => {
          state.most = Infinity;
          fill();
        },
      }, "Show all"));
    };
    filter.addEventListener("input", () => {
      state.text = filter.value.toLowerCase();
      fill();
    });
    fill();
  };

  const nameButton = (name, show = () => highlight(name)) => element("button", { type: "button", class: "link", title: shortened(names[name], 1000), onclick: show }, shortened(names[name], 400));
  const sumOf = (rows, value) => rows.reduce((sum, row) => sum + value(row), 0);

  const statistics = (section, rows, { caption, label, kind, empty, extra = [], what }) => {
    const whole = sumOf(rows, (row) => row.total);
    const total = times("Total", (row) => row.total, "Sum of the durations");
    sheet(section, {
      caption, rows, empty, sortedBy: total,
      textOf: (row) => names[row.name],
      note: `${plural(sumOf(rows, (row) => row.count), what)}, ${plural(rows.length, "name")}, ${time(whole)} in all`,
      columns: [
        { label, class: "wide", value: (row) => names[row.name], show: (_, row) => nameButton(row.name) },
        ...(kind ? [kind] : []),
        { label: "Share", title: "Share of the total time", class: "share", value: (row) => row.total, show: (ns) => percent(ns, whole), part: (row) => row.total / Math.max(1, whole) },
        total,
        numbers("Count", (row) => row.count),
        times("Mean", (row) => row.timed ? row.mean : null),
        times("Median", (row) => row.timed ? row.median : null),
        times("Min", (row) => row.timed ? row.min : null),
        times("Max", (row) => row.timed ? row.max : null),
        times("Std dev", (row) => row.timed ? row.std : null, "Standard deviation of a sample (n - 1)"),
        ...extra,
      ],
    });
  };

  const rangeTable = () => {
    const place = byId("ranges");
    const nodes = data.nodes;
    if (nodes.length === 0) {
      place.append(element("div", { class: "sheet" }, element("p", { class: "empty" }, "No range was entered in the session. Annotate the program with nvtx::range or #[nvtx::annotate] to see what its parts cost.")));
      return;
    }
    const children = nodes.map(() => []);
    const roots = [];
    nodes.forEach((node, row) => (node.parent ? children[node.parent - 1] : roots).push(row));
    const firstInstance = new Int32Array(nodes.length).fill(-1);
    for (let i = 0; i < R.length; i++) {
      const first = firstInstance[R.node[i]];
      if (first < 0 || R.start[i] < R.start[first]) firstInstance[R.node[i]] = i;
    }
    const gpu = (totals) => totals.kernel_ns + totals.copy_ns + totals.memset_ns + totals.graph_ns;
    const whole = gpu(data.totals);
    const columns = [
      { label: "Range", class: "wide", value: (row) => names[nodes[row].name] },
      numbers("Instances", (row) => nodes[row].instances),
      times("Host time", (row) => nodes[row].host_ns, "Time of the host in it, summed over instances"),
      { label: "GPU share", title: "Share of all GPU time", class: "share", value: (row) => gpu(nodes[row].inclusive), show: (ns) => percent(ns, whole), part: (row) => gpu(nodes[row].inclusive) / Math.max(1, whole) },
      times("GPU time", (row) => gpu(nodes[row].inclusive), "Time of the operations asked for in it and within, summed"),
      times("Own GPU", (row) => gpu(nodes[row].exclusive), "Time of the operations asked for in it directly"),
      numbers("Launches", (row) => nodes[row].inclusive.launches, "Kernel and graph launches"),
      numbers("Kernels", (row) => nodes[row].inclusive.kernels),
      numbers("Copies", (row) => nodes[row].inclusive.copies),
      sizes("Copied", (row) => nodes[row].inclusive.copy_bytes),
      numbers("Memsets", (row) => nodes[row].inclusive.memsets),
      ...(data.totals.graphs ? [numbers("Graphs", (row) => nodes[row].inclusive.graphs, "CUDA graphs traced as one interval each")] : []),
      numbers("Syncs", (row) => nodes[row].inclusive.synchronizations, "Synchronisation calls"),
      times("Sync time", (row) => nodes[row].inclusive.synchronization_ns, "Host time in them"),
      ...(nodes.some(({ replayed }) => gpu(replayed)) ? [times("Replayed GPU", (row) => (nodes[row].replayed ? gpu(nodes[row].replayed) : null), "Work of CUDA graphs captured in it, wherever it was launched")] : []),
      ...(nodes.some(({ inferred }) => inferred) ? [
        times("Inferred GPU", (row) => (nodes[row].inferred ? gpu(nodes[row].inferred) : null), "Work outside any range that another thread launched while the range's thread waited; in no other column"),
        numbers("Inferred kernels", (row) => nodes[row].inferred?.kernels ?? null),
      ] : []),
    ];
    const state = { column: null, isDown: true, text: "", open: new Set(), most: PAGE };
    // Open so far as a screen holds.
    let level = roots;
    for (let shownRows = roots.length; level.length; ) {
      const next = level.flatMap((row) => children[row]);
      if (shownRows + next.length > 40) break;
      shownRows += next.length;
      level.forEach((row) => state.open.add(row));
      level = next;
    }
    const filter = element("input", { type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter ranges", autocomplete: "off", spellcheck: "false" });
    const status = element("output", { "aria-live": "polite" });
    const button = (text, onclick) => element("button", { type: "button", class: "filter", onclick }, text);
    const head = element("tr");
    const body = element("tbody");
    const more = element("div", { class: "more-rows" });
    const title = place.querySelector("h2");
    const bar = element("div", { class: "bar" });
    place.insertBefore(bar, title);
    bar.append(title, element("div", { class: "tools" }, filter,
      button("Expand all", () => {
        nodes.forEach((_, row) => state.open.add(row));
        fill();
      }),
      button("Collapse all", () => {
        state.open.clear();
        fill();
      }), status));
    place.append(element("div", { class: "sheet" }, element("table", {}, element("caption", {}, "Ranges by path"), element("thead", {}, head), body), more));
    const sort = (column) => {
      // A third click is the order in which they first began.
      if (state.column !== column) [state.column, state.isDown] = [column, column !== columns[0]];
      else if (state.isDown === (column !== columns[0])) state.isDown = !state.isDown;
      else state.column = null;
      fill();
      head.children[columns.indexOf(column)].firstChild.focus();
    };
    const fill = () => {
      head.replaceChildren(...columns.map((column) => heading(column, state, sort)));
      const kept = state.text === "" ? null : new Set();
      if (kept) {
        nodes.forEach((node, row) => {
          if (!names[node.name].toLowerCase().includes(state.text)) return;
          for (let at = row + 1; at && !kept.has(at - 1); at = nodes[at - 1].parent) kept.add(at - 1);
        });
      }
      const lines = [];
      // Walked with a list: a recursion is as deep as it likes.
      const ordered = (rows) => {
        const sorted = state.column ? [...rows].sort(compare(state.column, state.isDown)) : rows;
        return kept ? sorted.filter((row) => kept.has(row)) : [...sorted];
      };
      const todo = ordered(roots).reverse().map((row) => [row, 0]);
      while (todo.length) {
        const [row, depth] = todo.pop();
        lines.push([row, depth]);
        if (kept || state.open.has(row)) todo.push(...ordered(children[row]).reverse().map((child) => [child, depth + 1]));
      }
      body.replaceChildren(...lines.slice(0, state.most).map(([row, depth]) => line(row, depth, kept)));
      if (Object.values(data.outside).some((sum) => sum !== 0) && !kept) body.append(outside());
      status.textContent = kept ? `${count(nodes.filter((node) => names[node.name].toLowerCase().includes(state.text)).length)} of ${count(nodes.length)}` : `${plural(nodes.length, "path")}, ${plural(R.length, "instance")}`;
      if (lines.length === 0) body.append(element("tr", {}, element("td", { colspan: columns.length, class: "empty" }, "No range has this text in its name.")));
      more.hidden = lines.length <= state.most;
      more.replaceChildren(`${count(state.most)} of ${count(lines.length)} rows are shown. `, element("button", { type: "button", onclick: () => {
        state.most = Infinity;
        fill();
      } }, "Show all"));
    };
    const line = (row, depth, kept) => {
      const node = nodes[row];
      const isOpen = kept !== null || state.open.has(row);
      const fold = children[row].length
        ? element("button", { type: "button", class: "fold", "aria-expanded": String(isOpen), "aria-label": `${isOpen ? "Collapse" : "Expand"} ${shortened(names[node.name], 80)}`, onclick: () => {
          if (!state.open.delete(row)) state.open.add(row);
          fill();
          body.querySelector(`[data-node="${row}"] .fold`)?.focus();
        } }, isOpen ? "\u25be" : "\u25b8")
        : element("span", { class: "fold none" }, "\u00b7");
      const first = element("td", { class: "wide" }, fold, nameButton(node.name, () => {
        highlight(node.name);
        if (firstInstance[row] >= 0) select({ type: "range", row: firstInstance[row] }, { reveal: true });
      }), node.domain === null ? undefined : element("span", { class: "domain" }, shortened(names[node.domain], 60)));
      first.style.paddingLeft = `${8 + Math.min(depth, 24) * 16}px`;
      return element("tr", { "data-node": row }, first, ...columns.slice(1).map((column) => cell(column, row)));
    };
    const outside = () => {
      const totals = data.outside;
      const node = { instances: null, host_ns: null, inclusive: totals, exclusive: totals };
      const at = nodes.length;
      nodes.push(node);
      const made = element("tr", {}, element("td", { class: "wide muted" }, element("span", { class: "fold none" }, "\u00b7"), "(outside any range)"), ...columns.slice(1).map((column) => cell(column, at)));
      nodes.pop();
      return made;
    };
    filter.addEventListener("input", () => {
      state.text = filter.value.toLowerCase();
      fill();
    });
    fill();
  };

  // --- scorecard ----------------------------------------------------------------------------------------------------

  const scorecard = () => {
    const { verdict, first, scores } = data.scorecard;
    const looks = { bad: "bad", look: "warn", good: "good", unknown: "plain" };
    const row = (tag, ...values) => element("tr", {}, ...values.map((value, at) => element(tag, { scope: tag === "th" ? "col" : undefined, class: at === 1 || at === 4 ? "text" : undefined }, value)));
    byId("scorecard").append(element("div", {},
      element("p", {}, shown(verdict)),
      element("div", { class: "sheet" }, element("table", {}, element("caption", {}, "Scorecard"),
        element("thead", {}, row("th", "Flag", "Value", "Is", "Target", "Rests on")),
        element("tbody", {}, ...scores.map((score) => row("td", element("span", { class: `badge ${looks[score.flag] ?? "plain"}` }, score.flag), score.name, score.value, score.target, shown(score.note)))))),
      first === null ? undefined : element("p", { class: "muted" }, `Mend first: ${shown(first[0])}: ${first[1]}.`)));
  };

  // --- summary ------------------------------------------------------------------------------------------------------

  const summary = () => {
    const { totals, health, info } = data;
    byId("what").textContent = shown(data.what);
    byId("what").title = shown(data.what);
    document.title = `GPU profile: ${shown(data.what)}`;
    const tile = (label, value, more) => element("div", { class: "tile" }, element("span", { class: "label" }, label), element("b", {}, ...value), element("span", { class: "more" }, more));
    const busy = sumOf(data.devices, (device) => device.busy.busy_ns);
    const alone = sumOf(data.devices, (device) => device.busy.communication_ns);
    const used = data.devices.filter((device) => device.busy.operations).length;
    const callTime = sumOf(data.api, (row) => row.total);
    byId("tiles").append(
      tile("Session", withUnit(timeParts(data.duration_ns)), `${plural(R.length, "range")}, ${plural(data.threads.length, "thread")}${data.processes.length ? `, ${data.processes.length} processes` : ""}`),
      tile("GPU busy", used ? [percent(busy, data.clock_ns * used)] : ["\u2013"], `${used > 1 ? `mean of ${used} GPUs` : used ? `${time(busy)} with work` : "no GPU work"}${alone ? `, and ${time(alone)} of collectives alone` : ""}`),
      tile("Kernels", [count(totals.kernels)], `${time(totals.kernel_ns)}, ${plural(totals.launches, "launch", "launches")}`),
      tile("Copies", [count(totals.copies)], `${time(totals.copy_ns)}, ${bytes(totals.copy_bytes)}`),
      tile("Memsets", [count(totals.memsets)], `${time(totals.memset_ns)}, ${bytes(totals.memset_bytes)}`),
      ...(totals.graphs ? [tile("Graphs", [count(totals.graphs)], `${time(totals.graph_ns)}, each traced as one interval`)] : []),
      tile("Synchronisations", [count(totals.synchronizations)], `${time(totals.synchronization_ns)} blocked`),
      tile("API calls", [count(data.calls.driver)], `${time(callTime)}${totals.failed_calls ? `, ${count(totals.failed_calls)} failed` : ""}`),
    );
    sampled(tile);
    const box = byId("health");
    box.append(element("span", { class: `badge ${health.is_complete ? "good" : "bad"}` }, health.is_complete ? "Complete" : "Incomplete"), " ",
      health.is_complete ? (health.records ? `Nothing was lost: ${plural(health.records, "record")}, each with its call.` : "Nothing was lost, for there were no records.") : "Something was lost; counts and times may be too low.");
    if (health.losses.length) box.append(element("ul", {}, ...health.losses.map(([name, number]) => element("li", {}, `${count(number)} ${name}`))));
    const incomplete = data.processes.filter(({ missing }) => missing);
    if (incomplete.length) box.append(element("ul", {}, ...incomplete.map(({ label, missing }) => element("li", {}, `${shown(label)}: ${shown(missing)}`))));
    const more = element("details", health.is_complete ? {} : { open: "" }, element("summary", {}, "Account of records and calls"));
    const row = (tag, ...values) => element("tr", {}, ...values.map((value) => element(tag, tag === "th" ? { scope: "col" } : {}, value)));
    more.append(element("div", { class: "sheet" }, element("table", {}, element("caption", {}, "Account of records and calls"),
      element("thead", {}, row("th", "Kind", "Records", "with their call", "Calls that owe one", "with their record", "Balance")),
      element("tbody", {}, ...health.accounts.map((account) => row("td", account.name, count(account.records), count(account.matched_records), count(account.calls), count(account.matched_calls), account.is_balanced ? "balanced" : "not balanced"))))),
    element("p", { class: "muted" }, `In words: ${health.in_words}.`));
    box.append(more);
    if (data.processes.length) {
      const line = ({ label, start_ns, ns, totals }) => row("td", shown(label), time(start_ns), time(ns), time(totals.kernel_ns), count(totals.kernels), count(totals.copies), bytes(totals.copy_bytes));
      byId("tiles").after(element("div", { class: "sheet" }, element("table", {}, element("caption", {}, "Processes"),
        element("thead", {}, row("th", "Process", "Began", "Recorded", "Kernel time", "Kernels", "Copies", "Copied")),
        element("tbody", {}, ...data.processes.map(line)))));
    }

    const cuda = (version) => `${Math.floor(version / 1000)}.${Math.floor(version / 10) % 100}`;
    const list = element("dl", { class: "facts" });
    const add = (label, value) => list.append(element("dt", {}, label), element("dd", {}, value));
    for (const device of data.devices) {
      add(`GPU ${device.id}`, device.name === undefined ? "not described in the recording" : `${shown(device.name)}, compute capability ${device.compute_capability.join(".")}, ${device.multiprocessors} multiprocessors, ${bytes(device.memory_bytes)}`);
    }
    if (data.devices.length === 0) add("GPU", "none");
    add("Driver", `${info.driver_release === null ? "" : `${shown(info.driver_release)}, `}CUDA ${cuda(info.cuda_driver_version)}`);
    add("CUPTI", `API version ${info.cupti_version}`);
    add("Recorded", `${new Date(info.recorded_at_s * 1000).toISOString().replace("T", " ").slice(0, 19)} UTC by profiler-core ${shown(info.recorder_version)}`);
    byId("machine").append(list);
  };

  // Means of what was sampled: the first in per cent as tiles, all as a table, and what a sampler lost.
  const sampled = (tile) => {
    const known = tracks.filter((track) => track.mean !== null);
    for (const track of known.filter(({ unit }) => unit === "percent").slice(0, 6)) {
      byId("tiles").append(tile(trackLabel(track), [measured(track.mean, track.unit)], `mean of ${plural(track.count, "sample")}`));
    }
    const losses = data.samplers.map((sampler) => element("li", {}, `GPU ${sampler.device}, ${sampler.source}: ${shown(sampler.losses.join("; "))}`));
    if (tracks.length === 0 && losses.length === 0) return;
    const place = byId("sampled");
    place.append(element("h3", {}, "Sampled"));
    if (losses.length) place.append(element("ul", {}, ...losses));
    if (tracks.length === 0) return;
    const row = (tag, ...values) => element("tr", {}, ...values.map((value) => element(tag, tag === "th" ? { scope: "col" } : {}, value)));
    const extremes = (track) => [track.least.reduce((a, b) => Math.min(a, b), Infinity), track.most.reduce((a, b) => Math.max(a, b), -Infinity)];
    const line = (track) => {
      const [least, most] = extremes(track).map((value) => (Number.isFinite(value) ? measured(value, track.unit) : "\u2013"));
      return row("td", track.label, String(track.device), track.mean === null ? "\u2013" : measured(track.mean, track.unit), least, most, count(track.count), time(track.covered_ns), track.name);
    };
    place.append(element("div", { class: "sheet" }, element("table", {}, element("caption", {}, "What was sampled"),
      element("thead", {}, row("th", "Metric", "GPU", "Mean", "Least", "Most", "Samples", "Time", "Name")),
      element("tbody", {}, ...tracks.map(line)))));
  };

  const findings = () => {
    const list = byId("findings").querySelector("ul");
    const levels = { loss: ["Loss", "bad"], warning: ["Warning", "warn"], fact: ["Fact", "plain"] };
    for (const finding of data.findings) {
      const [label, look] = levels[finding.level] ?? levels.fact;
      const show = finding.at_ns === null ? undefined : element("button", { type: "button", onclick: () => {
        const [from, length] = finding.at_ns;
        const group = groups.find((group) => group.busy && group.busy.end.includes(from));
        if (group) select(gapAfter(group, group.busy.end.indexOf(from)));
        showStretch(from, from + length);
      } }, "Show");
      list.append(element("li", {}, element("span", { class: `badge ${look}` }, label), element("div", {}, element("b", {}, shown(finding.title)), element("div", { class: "muted" }, shown(finding.text))), show));
    }
    if (data.findings.length === 0) list.append(element("li", {}, element("span", { class: "badge plain" }, "None"), element("div", {}, "Nothing to say beyond the tables.")));
  };
  const showStretch = (from, to) => {
    const room = (to - from) * 0.5;
    show(from - room, to + room);
    byId("timeline").scrollIntoView({ block: "start" });
  };

  const legend = () => {
    const kinds = new Set();
    for (const work of data.works) kinds.add(work[0]);
    const classes = new Set(data.call_kinds.map(([, name]) => name));
    const entry = (color, text) => {
      const box = element("i");
      box.style.background = color;
      return element("span", {}, box, text);
    };
    byId("legend").replaceChildren(
      ...OPERATIONS.map(([text, light, dark], kind) => (kinds.has(kind) ? entry(isDark() ? dark : light, text) : "")),
      ...Object.entries(CALLS).map(([name, [text, light, dark]]) => (classes.has(name) ? entry(isDark() ? dark : light, text) : "")),
      tracks.some((track) => track.kind !== "state") ? entry("var(--muted)", "Sampled: the mean of a pixel's time; behind it, lighter, the most") : "",
      groups.some((group) => group.busy?.length > 1) ? entry("var(--gap-line)", "Gap on the GPU") : "",
      data.pauses_ns.length ? entry("var(--raised)", "Session off") : "");
  };

  // --- theme --------------------------------------------------------------------------------------------------------

  const wanted = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("gpu-profile-theme");
  } catch {
    // A page from disk may have no storage.
  }
  const applyTheme = (isPrinted = false) => {
    const dark = !isPrinted && (chosen === null ? wanted.matches : chosen === "dark");
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = dark ? "Light" : "Dark";
    byId("theme").setAttribute("aria-pressed", String(dark));
    byId("theme").setAttribute("aria-label", dark ? "Switch to the light theme" : "Switch to the dark theme");
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    colors = {
      panel: value("--panel"), raised: value("--raised"), ink: value("--ink"), muted: value("--muted"), line: value("--line"),
      strongLine: value("--strong-line"), accent: value("--accent"), accentFill: value("--accent-fill"), gap: value("--gap"), gapLine: value("--gap-line"),
      hit: dark ? "#ffd24a" : "#c2185b", projection: dark ? "rgba(127, 184, 245, 0.10)" : "rgba(31, 98, 173, 0.08)",
      veil: dark ? "rgba(18, 21, 24, 0.62)" : "rgba(246, 247, 248, 0.68)",
    };
    paints = new Map();
    legend();
  };

  try {
    applyTheme();
    wanted.addEventListener("change", () => {
      applyTheme();
      draw();
    });
    byId("theme").addEventListener("click", () => {
      chosen = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("gpu-profile-theme", chosen);
      } catch {
        // The choice then lasts as long as the page.
      }
      applyTheme();
      draw();
    });
    window.addEventListener("beforeprint", () => {
      applyTheme(true);
      drawNow();
    });
    window.addEventListener("afterprint", () => {
      applyTheme();
      draw();
    });
    {
      const context = canvas.getContext("2d");
      context.font = SMALL;
      glyph = context.measureText("mmmmmmmmmm").width / 10;
    }
    scorecard();
    summary();
    findings();
    rangeTable();
    statistics("kernels", data.kernels, { caption: "Kernels by name", label: "Kernel", empty: "No kernel ran in the session.", what: "kernel" });
    statistics("memory", data.memory, {
      caption: "Memory operations by kind", label: "Operation", empty: "No copy and no memset ran in the session.", what: "operation",
      extra: [
        sizes("Bytes", (row) => row.bytes),
        { label: "Rate", class: "rate", title: "Bytes over their time", value: (row) => (row.total ? row.bytes / row.total : 0), show: (_, row) => withUnit((rate(row.bytes, row.total) || "0 B/s").split(" ")) },
      ],
    });
    statistics("api", data.api, {
      caption: "API calls by name", label: "Function", empty: "No API call was recorded in the session.", what: "call",
      kind: { label: "Does", class: "text", value: (row) => data.call_kinds[row.of][1], show: (text) => text },
      extra: data.api.some((row) => row.failed) ? [numbers("Failed", (row) => row.failed)] : [],
    });
    if (groups.length === 0) {
      for (const part of ["stage", "legend", "keys"]) byId(part).hidden = true;
      document.querySelectorAll("#timeline .tools").forEach((tools) => tools.hidden = true);
      byId("timeline").append(element("div", { class: "sheet" }, element("p", { class: "empty" }, "No ranges, no calls and no GPU operations were recorded.")));
    }
    listen();
    layOut();
    searchFor(null);
    select(null);
    // For those who look into the page with a debugger, and for its test.
    window.profile = {
      readyAfter: performance.now(), builtIn: performance.now() - began, frames, groups, lanes, names, view, rows: { ranges: R.length, calls: C.length, operations: O.length },
      selected: () => selected, parentOf: (range) => R.parent[range], found: () => search?.found ?? null, drawNow, show, xOf, scroller,
    };
  } catch (error) {
    failed(error);
  }
})();
