// What does not change with the selection: figures, scorecard, sampled means, health, the machine.
import { byId, element, facts, muted, plainTable, withUnit } from "./dom.mjs";
import { rateUnit } from "./details.mjs";
import { state } from "./state.mjs";
import { bytes, count, measured, percent, plural, shortened, time, timeParts } from "./units.mjs";

const sumBy = (rows, value) => rows.reduce((sum, row) => sum + value(row), 0);
const figure = (label, value, more) => element("li", { title: more }, element("span", {}, label), " ", element("b", {}, ...[value].flat()), " ", element("span", { class: "more" }, more));

/** The figures above the timeline. */
const figures = () => {
  const { data, R, tracks, trackLabel } = state.model;
  const { totals, health } = data;
  const busy = sumBy(data.devices, (device) => device.busy.busy_ns);
  const alone = sumBy(data.devices, (device) => device.busy.communication_ns);
  const used = data.devices.filter((device) => device.busy.operations).length;
  const energy = tracks.filter(({ total, total_unit: unit }) => total !== null && unit === "joules");
  byId("figures").append(
    element("li", {}, element("span", { class: `badge ${health.is_complete ? "good" : "bad"}`, id: "complete" }, health.is_complete ? "Complete" : "Incomplete")),
    figure("Session", withUnit(timeParts(data.duration_ns)), `${plural(R.length, "range")}, ${plural(data.threads.length, "thread")}${data.processes.length ? `, ${data.processes.length} processes` : ""}`),
    figure("GPU busy", used ? percent(busy, data.clock_ns * used) : "\u2013", `${used > 1 ? `mean of ${used} GPUs` : used ? `${time(busy)} with work` : "no GPU work"}${alone ? `, and ${time(alone)} of collectives alone` : ""}`),
    ...energy.map((track) => figure(trackLabel(track), measured(track.total, "joules"), `mean ${measured(track.mean, "watts")}, ${plural(track.count, "sample")}`)),
    figure("Kernels", count(totals.kernels), `${time(totals.kernel_ns)}, ${plural(totals.launches, "launch", "launches")}`),
    figure("Copies", count(totals.copies), `${time(totals.copy_ns)}, ${bytes(totals.copy_bytes)}`),
    ...(totals.memsets ? [figure("Memsets", count(totals.memsets), `${time(totals.memset_ns)}, ${bytes(totals.memset_bytes)}`)] : []),
    ...(totals.graphs ? [figure("Graphs", count(totals.graphs), `${time(totals.graph_ns)}, each traced as one interval`)] : []),
    figure("Syncs", count(totals.synchronizations), `${time(totals.synchronization_ns)} blocked`),
    figure("API calls", count(data.calls.driver), `${time(sumBy(data.api, (row) => row.total))}${totals.failed_calls ? `, ${count(totals.failed_calls)} failed` : ""}`),
    ...tracks.filter(({ mean, unit }) => mean !== null && unit === "percent").slice(0, 3).map((track) => figure(trackLabel(track), measured(track.mean, track.unit), `mean of ${plural(track.count, "sample")}`)));
};

const scorecard = () => {
  const { verdict, first, scores } = state.model.data.scorecard;
  const looks = { bad: "bad", look: "warn", good: "good", unknown: "plain" };
  byId("panel-scorecard").replaceChildren(element("p", {}, element("b", {}, verdict)), first === null ? "" : muted(`Mend first: ${first[0]}: ${first[1]}.`),
    plainTable("Scorecard", ["Flag", "Value", "Is", "Target", "Rests on"], scores.map((score) => [element("span", { class: `badge ${looks[score.flag] ?? "plain"}` }, score.flag), score.name, score.value, score.target, score.note])));
};

/** Means of what was sampled, and what a sampler lost. */
const sampled = () => {
  const { data, tracks } = state.model;
  const losses = data.samplers.map((sampler) => element("li", {}, `GPU ${sampler.device}, ${sampler.source}: ${sampler.losses.join("; ")}`));
  byId("tab-sampled").hidden = tracks.length + losses.length === 0;
  const line = (track) => {
    const [least, most] = [track.least.reduce((a, b) => Math.min(a, b), Infinity), track.most.reduce((a, b) => Math.max(a, b), -Infinity)]
      .map((value) => (Number.isFinite(value) ? measured(value, track.unit) : "\u2013"));
    return [track.label, String(track.device), track.mean === null ? "\u2013" : measured(track.mean, rateUnit(track)), least, most, track.total === null ? "" : measured(track.total, track.total_unit), count(track.count), time(track.covered_ns), track.name];
  };
  byId("panel-sampled").replaceChildren(losses.length ? element("ul", {}, ...losses) : "",
    tracks.length ? plainTable("What was sampled", ["Metric", "GPU", "Mean", "Least", "Most", "Total", "Samples", "Time", "Name"], tracks.map(line)) : "");
};

/** What was lost, and the account that shows it. */
const health = () => {
  const { health, processes } = state.model.data;
  const incomplete = processes.filter(({ missing }) => missing);
  const text = health.is_complete ? (health.records ? `Nothing was lost: ${plural(health.records, "record")}, each with its call.` : "Nothing was lost, for there were no records.") : "Something was lost; counts and times may be too low.";
  return [element("p", { id: "health" }, element("span", { class: `badge ${health.is_complete ? "good" : "bad"}` }, health.is_complete ? "Complete" : "Incomplete"), " ", text),
    health.losses.length ? element("ul", { id: "losses" }, ...health.losses.map(([name, number]) => element("li", {}, `${count(number)} ${name}`))) : "",
    incomplete.length ? element("ul", {}, ...incomplete.map(({ label, missing }) => element("li", {}, `${label}: ${missing}`))) : "",
    plainTable("Account of records and calls", ["Kind", "Records", "with their call", "Calls that expect one", "with their record", "Balance"],
      health.accounts.map((account) => [account.name, count(account.records), count(account.matched_records), count(account.calls), count(account.matched_calls), account.is_balanced ? "balanced" : "not balanced"])),
    muted(`In words: ${health.in_words}.`)];
};
const machine = () => {
  const { data } = state.model;
  const { info } = data;
  const cuda = (version) => `${Math.floor(version / 1000)}.${Math.floor(version / 10) % 100}`;
  const devices = data.devices.map((device) => [`GPU ${device.id}`, device.name === undefined ? "not described in the recording"
    : `${device.name}, compute capability ${device.compute_capability.join(".")}, ${device.multiprocessors} multiprocessors, ${bytes(device.memory_bytes)}`]);
  const driver = [info.driver_release, info.cuda_driver_version ? `CUDA ${cuda(info.cuda_driver_version)}` : null].filter((part) => part !== null).join(", ");
  // Other tools say who they are; captures of them may lack the rest.
  const recorder = /^\d/.test(info.recorder_version) ? `profiler-core ${info.recorder_version}` : info.recorder_version;
  const recorded = info.recorded_at_s ? `${new Date(info.recorded_at_s * 1000).toISOString().replace("T", " ").slice(0, 19)} UTC by ` : "by ";
  return facts([...(devices.length ? devices : [["GPU", "none"]]), ...(driver ? [["Driver", driver]] : []), ...(info.cupti_version ? [["CUPTI", `API version ${info.cupti_version}`]] : []),
    ["Recorded", recorded + recorder]], "facts");
};

const processTable = ({ processes }) => (processes.length === 0 ? "" : plainTable("Processes", ["Process", "Began", "Recorded", "Kernel time", "Kernels", "Copies", "Copied"],
  processes.map(({ label, start_ns, ns, totals }) => [label, time(start_ns), time(ns), time(totals.kernel_ns), count(totals.kernels), count(totals.copies), bytes(totals.copy_bytes)])));

export const summarise = () => {
  const { data } = state.model;
  byId("what").textContent = byId("what").title = data.what;
  document.title = `GPU profile: ${shortened(data.what, 300)}`;
  figures();
  scorecard();
  sampled();
  byId("panel-recording").replaceChildren(element("h2", {}, "Health"), ...health(), data.processes.length ? element("h2", {}, "Processes") : "", processTable(data), element("h2", {}, "Machine and versions"), machine());
};
