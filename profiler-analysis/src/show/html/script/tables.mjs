// Tables that sort by a click on a heading, filter by text, and follow what is selected and visible.
import { OPERATIONS } from "./colors.mjs";
import { button, byId, element, nameButton, swatch, withName, withUnit } from "./dom.mjs";
import { highlight, select } from "./selection.mjs";
import { state } from "./state.mjs";
import { gpuTime } from "./sums.mjs";
import { byteParts, count, percent, plural, rate, shortened, time, timeParts } from "./units.mjs";

/** Rows of a table before more are asked for. */
const PAGE = 100;
const numbers = (label, value, title) => ({ label, title, value, show: (n) => count(n) });
const times = (label, value, title) => ({ label, title, value, show: (ns) => withUnit(timeParts(ns)) });
const sizes = (label, value, title) => ({ label, title, value, show: (n) => withUnit(byteParts(n)) });
const shareColumn = (label, value, whole, title) => ({ label, title, class: "share", value, show: (ns) => percent(ns, whole()), part: (row) => value(row) / Math.max(1, whole()) });

const cell = (column, row) => {
  const value = column.value(row);
  const made = element("td", { class: column.class });
  if (value === null || value === undefined) return made;
  const content = column.show(value, row);
  made.append(...(Array.isArray(content) ? content : [content]));
  if (value === 0 && !column.class) made.className = "zero";
  if (column.part) made.style.setProperty("--part", `${(100 * Math.min(1, column.part(row))).toFixed(2)}%`);
  return made;
};
const heading = (column, sorting, sort) => {
  const order = sorting.column === column ? (sorting.isDown ? "descending" : "ascending") : "none";
  return element("th", { scope: "col", class: column.class === "text" ? "text" : undefined, "aria-sort": order }, button(column.label, () => sort(column), { title: column.title }));
};
const compare = (column, isDown) => (a, b) => {
  const [x, y] = [column.value(a), column.value(b)];
  const order = typeof x === "string" ? x.localeCompare(y) : x - y;
  return isDown ? -order : order;
};
/** The content of a cell: what precedes a name, the name, and its domain. */
const nameLine = (mark, name, go, domain = null) => {
  const { names } = state.model;
  return element("div", { class: "name-line" }, mark, nameButton(shortened(names[name], 400), go, { title: shortened(names[name], 1000) }),
    domain === null ? undefined : withName(element("span", { class: "domain", title: shortened(names[domain], 1000) }), shortened(names[domain], 60), 4));
};

/** The parts that a sorted and filtered table has: its filter, what it says of itself, its head, its body and a way to more rows. */
const frameOf = (id, caption, filterLabel, refill, more = []) => {
  const filter = element("input", { type: "search", class: "filter", placeholder: "Filter", "aria-label": filterLabel, autocomplete: "off", spellcheck: "false" });
  const status = element("output", { "aria-live": "polite" });
  const [head, body, rest] = [element("tr"), element("tbody"), element("div", { class: "more-rows" })];
  byId(id).replaceChildren(element("div", { class: "tools" }, filter, ...more, status),
    element("div", { class: "sheet" }, element("table", {}, element("caption", {}, caption), element("thead", {}, head), body), rest));
  filter.addEventListener("input", () => refill(filter.value.toLowerCase()));
  return { status, head, body, rest };
};
const empty = (id, text) => byId(id).replaceChildren(element("p", { class: "empty" }, text));

/** A table of names. Returns what fills it with rows. */
const sheetOf = (id, { caption, columns, sortedBy, none, noteOf }) => {
  const sorting = { column: sortedBy, isDown: true };
  let [rows, text, most, parts] = [[], "", PAGE, null];
  const sort = (column) => {
    sorting.isDown = sorting.column === column ? !sorting.isDown : rows.length === 0 || typeof column.value(rows[0]) !== "string";
    sorting.column = column;
    fill();
    parts.head.children[columns.indexOf(column)].firstChild.focus();
  };
  const fill = () => {
    const { status, head, body, rest } = parts;
    const { names, data } = state.model;
    head.replaceChildren(...columns.map((column) => heading(column, sorting, sort)));
    const found = rows.filter((row) => text === "" || names[row.name].toLowerCase().includes(text)).sort(compare(sorting.column, sorting.isDown));
    const chosen = chosenName();
    body.replaceChildren(...found.slice(0, most).map((row) => element("tr", { class: row.name === chosen ? "chosen" : undefined }, ...columns.map((column) => cell(column, row)))));
    status.textContent = text === "" ? noteOf(rows) : `${count(found.length)} of ${count(rows.length)}`;
    if (found.length === 0) body.append(element("tr", {}, element("td", { colspan: columns.length, class: "empty" }, data && rows.length ? "No name has this text in it." : "Nothing of this here.")));
    rest.hidden = found.length <= most;
    rest.replaceChildren(`${count(most)} of ${count(found.length)} rows are shown. `, button("Show all", () => {
      most = Infinity;
      fill();
    }));
  };
  return (given, isEmpty) => {
    if (isEmpty) return empty(id, none);
    rows = given;
    parts ??= frameOf(id, caption, `Filter ${caption}`, (typed) => {
      text = typed;
      fill();
    });
    fill();
  };
};
/** The name of the selected operation or call, whose row is marked. */
const chosenName = () => {
  const { selected, model } = state;
  return selected?.type === "operation" || selected?.type === "call" ? model.tables[selected.type].name[selected.row] : -1;
};
const sumOf = (rows, field) => rows.reduce((sum, row) => sum + row[field], 0);

const statistics = (id, { caption, label, none, what, kinds = [], extra = [], colorOf }) => {
  let whole = 0;
  const total = times("Total", (row) => row.total, "Time within what is shown");
  const known = (label, field, title) => times(label, (row) => (row.timed ? row[field] : null), title);
  const fill = sheetOf(id, {
    caption, none, sortedBy: total,
    noteOf: (rows) => `${plural(sumOf(rows, "count"), what)}, ${plural(rows.length, "name")}, ${time(whole)} in all`,
    columns: [
      { label, class: "wide", value: (row) => state.model.names[row.name], show: (_, row) => nameLine(swatch(colorOf(row)), row.name, () => highlight(row.name)) },
      ...kinds, shareColumn("Share", (row) => row.total, () => whole, "Share of the total time"), total, numbers("Count", (row) => row.count),
      known("Mean", "mean", "Of whole items"), known("Median", "median", "Of whole items"), known("Min", "min"), known("Max", "max"), known("Std dev", "std", "Standard deviation of a sample (n - 1)"), ...extra,
    ],
  });
  return (rows, isEmpty) => {
    whole = sumOf(rows, "total");
    fill(rows, isEmpty);
  };
};

const rangeTable = () => {
  const { data, names, R, C } = state.model;
  const nodes = data.nodes;
  const children = nodes.map(() => []);
  const roots = [];
  nodes.forEach((node, row) => (node.parent ? children[node.parent - 1] : roots).push(row));
  let [sums, whole, parts, isWhole] = [null, 0, null, true];
  const of = (row) => (row < 0 ? { instances: null, host_ns: null, inclusive: sums.outside, exclusive: sums.outside } : sums.nodes[row]);
  const inclusive = (field) => (row) => of(row).inclusive[field];
  const gpu = (row) => gpuTime(of(row).inclusive);
  const columns = [
    { label: "Range", class: "wide", value: (row) => names[nodes[row].name] },
    numbers("Instances", (row) => of(row).instances),
    times("Host time", (row) => of(row).host_ns, "Time of the host in it, summed over instances"),
    shareColumn("GPU share", gpu, () => whole, "Share of all GPU time"),
    times("GPU time", gpu, "Time of the operations submitted in it and within, summed"),
    times("Own GPU", (row) => gpuTime(of(row).exclusive), "Time of the operations submitted in it directly"),
    numbers("Launches", inclusive("launches"), "Kernel and graph launches"), numbers("Kernels", inclusive("kernels")), numbers("Copies", inclusive("copies")),
    sizes("Copied", inclusive("copy_bytes")), numbers("Memsets", inclusive("memsets")),
    ...(data.totals.graphs ? [numbers("Graphs", inclusive("graphs"), "CUDA graphs traced as one interval each")] : []),
    numbers("Syncs", inclusive("synchronizations"), "Synchronisation calls"), times("Sync time", inclusive("synchronization_ns"), "Host time in them"),
    // These are known of the whole session alone.
    ...(nodes.some(({ replayed }) => replayed && gpuTime(replayed) > 0) ? [times("Replayed GPU", (row) => (of(row).replayed ? gpuTime(of(row).replayed) : null), "Work of CUDA graphs captured in it, wherever it was launched; of the whole session")] : []),
    ...(nodes.some(({ inferred }) => inferred) ? [
      times("Inferred GPU", (row) => (of(row).inferred ? gpuTime(of(row).inferred) : null), "Work outside any range that another thread launched while the range's thread waited; in no other column, and of the whole session"),
      numbers("Inferred kernels", (row) => of(row).inferred?.kernels ?? null),
    ] : []),
  ];
  const sorting = { column: null, isDown: true };
  const open = new Set();
  let [text, most] = ["", PAGE];
  // Open as far as a screen holds.
  for (let level = roots, rows = roots.length; level.length;) {
    const next = level.flatMap((row) => children[row]);
    if (rows + next.length > 40) break;
    rows += next.length;
    level.forEach((row) => open.add(row));
    level = next;
  }
  const sort = (column) => {
    // A third click is the order in which they first started.
    if (sorting.column !== column) Object.assign(sorting, { column, isDown: column !== columns[0] });
    else if (sorting.isDown === (column !== columns[0])) sorting.isDown = !sorting.isDown;
    else sorting.column = null;
    fill();
    parts.head.children[columns.indexOf(column)].firstChild.focus();
  };
  const matches = (row) => names[nodes[row].name].toLowerCase().includes(text);
  /** Nodes to show with their depth: those of the filter and around it, those with content, in the order of the sorting. */
  const lines = () => {
    const kept = text === "" ? null : new Set();
    if (kept !== null) for (let row = 0; row < nodes.length; row++) if (matches(row)) for (let at = row + 1; at && !kept.has(at - 1); at = nodes[at - 1].parent) kept.add(at - 1);
    const ordered = (rows) => {
      const shown = rows.filter((row) => (kept === null || kept.has(row)) && (isWhole || sums.nodes[row].instances > 0 || gpu(row) > 0 || sums.nodes[row].inclusive.launches > 0));
      return sorting.column === null ? shown : shown.sort(compare(sorting.column, sorting.isDown));
    };
    const found = [];
    // A list instead of recursion, which may be deeper than the stack.
    const todo = ordered(roots).reverse().map((row) => [row, 0]);
    while (todo.length) {
      const [row, depth] = todo.pop();
      found.push([row, depth]);
      if (kept !== null || open.has(row)) todo.push(...ordered(children[row]).reverse().map((child) => [child, depth + 1]));
    }
    return found;
  };
  const fold = (row, isOpen) => (children[row].length
    ? button(isOpen ? "\u25be" : "\u25b8", () => {
      if (!open.delete(row)) open.add(row);
      fill();
      parts.body.querySelector(`[data-node="${row}"] .fold`)?.focus();
    }, { class: "fold", "aria-expanded": String(isOpen), "aria-label": `${isOpen ? "Collapse" : "Expand"} ${shortened(names[nodes[row].name], 80)}` })
    : element("span", { class: "fold none" }, "\u00b7"));
  const line = ([row, depth]) => {
    const { name, domain } = nodes[row];
    const first = element("td", { class: "wide" }, nameLine(fold(row, text !== "" || open.has(row)), name, () => select({ type: "node", row }, { isRevealed: true }), domain));
    first.style.setProperty("--indent", `${Math.min(depth, 24) * 16}px`);
    const isChosen = state.selected?.type === "node" ? state.selected.row === row : state.selected?.type === "range" && R.node[state.selected.row] === row;
    return element("tr", { "data-node": row, class: isChosen ? "chosen" : undefined }, first, ...columns.slice(1).map((column) => cell(column, row)));
  };
  const outside = () => element("tr", {}, element("td", { class: "wide muted" }, element("div", { class: "name-line" }, element("span", { class: "fold none" }, "\u00b7"), "(outside any range)")), ...columns.slice(1).map((column) => cell(column, -1)));
  const fill = () => {
    const { status, head, body, rest } = parts;
    head.replaceChildren(...columns.map((column) => heading(column, sorting, sort)));
    const found = lines();
    body.replaceChildren(...found.slice(0, most).map(line));
    if (text === "" && Object.values(sums.outside).some((sum) => sum !== 0)) body.append(outside());
    const instances = sums.nodes.reduce((sum, node) => sum + node.instances, 0);
    status.textContent = text === "" ? `${plural(found.length, "path")}, ${plural(instances, "instance")}` : `${count(nodes.filter((_, row) => matches(row)).length)} of ${count(nodes.length)}`;
    if (text === "" && isWhole) status.textContent = `${plural(nodes.length, "path")}, ${plural(instances, "instance")}`;
    if (found.length === 0) body.append(element("tr", {}, element("td", { colspan: columns.length, class: "empty" }, text === "" ? "No range here." : "No range has this text in its name.")));
    rest.hidden = found.length <= most;
    rest.replaceChildren(`${count(most)} of ${count(found.length)} rows are shown. `, button("Show all", () => {
      most = Infinity;
      fill();
    }));
  };
  const all = (isOpen) => () => {
    open.clear();
    if (isOpen) nodes.forEach((_, row) => open.add(row));
    fill();
  };
  return (given, whatIsWhole) => {
    if (nodes.length === 0) {
      const hint = C.length + R.length === 0 ? "" : " Annotate the program with nvtx::range or #[nvtx::annotate] to see what its parts cost.";
      return empty("panel-ranges", `No range was entered in the session.${hint}`);
    }
    [sums, isWhole] = [given, whatIsWhole];
    whole = gpuTime(sums.outside) + sums.nodes.reduce((sum, node) => sum + gpuTime(node.exclusive), 0);
    parts ??= frameOf("panel-ranges", data.crossings ? `Ranges by path. ${data.crossings}.` : "Ranges by path", "Filter ranges", (typed) => {
      text = typed;
      fill();
    }, [button("Expand all", all(true)), button("Collapse all", all(false))]);
    fill();
  };
};

/** What the warps of a line did, the most frequent states first. */
export const statesOf = ({ samples, stalls }) => stalls.slice(0, 3).filter(([, number], at) => at === 0 || number >= samples / 100).map(([stall, number]) => `${state.model.names[stall]} ${percent(number, samples)}`).join(", ");
const lineTable = () => {
  let whole = 0;
  const samples = numbers("Samples", (row) => Math.round(row.samples), "Samples of the instructions of the line");
  const fill = sheetOf("panel-lines", {
    caption: "Instruction samples by line", sortedBy: samples, none: "No instructions were sampled in the session.",
    noteOf: (rows) => `${plural(Math.round(whole), "sample")}, ${plural(rows.length, "line")}`,
    columns: [
      { label: "Line", class: "wide", value: (row) => state.model.names[row.name], show: (_, row) => nameLine(swatch(state.paints.kernel(row.kernel).fill), row.name, () => highlight(row.kernel)) },
      { label: "Kernel", class: "text", value: (row) => state.model.names[row.kernel], show: (name) => shortened(name, 60) },
      shareColumn("Share", (row) => row.samples, () => whole, "Share of the samples shown"), samples,
      { label: "Warps", class: "text", value: statesOf, show: (text) => text },
    ],
  });
  return (rows, isEmpty) => {
    whole = sumOf(rows, "samples");
    fill(rows, isEmpty);
  };
};

/** What fills each table. */
export const tablesOf = () => {
  const { model } = state;
  const { data } = model;
  const classOf = (row) => data.call_kinds[row.of][1];
  return {
    ranges: rangeTable(),
    kernels: statistics("panel-kernels", { caption: "Kernels by name", label: "Kernel", none: "No kernel ran in the session.", what: "kernel", colorOf: (row) => state.paints.kernel(row.name).fill }),
    lines: lineTable(),
    memory: statistics("panel-memory", {
      caption: "Memory operations by kind", label: "Operation", none: "No copy and no memset ran in the session.", what: "operation",
      colorOf: (row) => OPERATIONS[data.works[row.of][0]][state.isDark ? 2 : 1],
      extra: [sizes("Bytes", (row) => row.bytes), { label: "Rate", class: "rate", title: "Bytes over their time", value: (row) => (row.total ? row.bytes / row.total : 0), show: (_, row) => withUnit((rate(row.bytes, row.total) || "0 B/s").split(" ")) }],
    }),
    api: statistics("panel-api", {
      caption: "API calls by name", label: "Function", none: "No API call was recorded in the session.", what: "call",
      kinds: [{ label: "Does", class: "text", value: classOf, show: (text) => text }],
      colorOf: (row) => state.paints.callClass(classOf(row)).fill,
      extra: data.api.some((row) => row.failed) ? [numbers("Failed", (row) => row.failed)] : [],
    }),
  };
};
