// The console's first page, and its parts: explanations of words, charts, and the history in the browser.
//
// The history is stored in this tab (sessionStorage): it survives a reload, costs the nodes nothing, and is deleted
// with the tab and at sign-out. For each limit and stack it has a value for each second of the last minute, and the
// means of 60 minutes. Time in which the page was not visible is a gap.
"use strict";

const SECONDS = 60;
const MINUTES = 60;
const LINES = 500; // limits and stacks of which charts are kept
const CHANGES = 30;
const CHANGES_SHOWN = 12;
const LIMITS_SHOWN = 10;
const KEPT = "reconverge-history";
const FLEET = JSON.stringify([]); // names of charts; a limit's and a stack's have members
const ofLimit = (each) => JSON.stringify(["limit", each.name]);
const ofStack = (stack) => JSON.stringify(["stack", stack.name, ...stack.classes.map((each) => each.name), null, ...stack.layers.map((each) => each.name)]);

const TERMS = {
  exposure: "Exposure is how far one known key could go over a limit on all nodes together: now, and at worst.",
  staleness: "Staleness is the time since the hub last answered a node; the node does not know what others have admitted since.",
  exchange: "An exchange is one round trip between a node and its hub: the node reports its counts, and learns those of all nodes.",
  pressure: "Pressure is the load of a process, as a share of its target: below 1 it has room, above 1 it refuses the least important requests first.",
};

// The sentences stand on the pages, and again where the word heads a column.
function explain() {
  for (const each of document.querySelectorAll("[data-explains]")) {
    each.textContent = each.dataset.explains.split(" ").map((term) => TERMS[term]).join(" ");
  }
  for (const each of document.querySelectorAll("[data-term]")) each.title = TERMS[each.dataset.term];
}

// ---------------------------------------------------------------- what is remembered

let kept = { charts: new Map(), changes: [], since: Date.now() / 1000 };
let nodesBefore = null;
let limitsBefore = null;

function recall(namespace) {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT));
    if (found && found.namespace === namespace) kept = { ...found, charts: new Map(found.charts) };
  } catch { /* a browser that keeps nothing, or something else under this name */ }
}

function remember(namespace) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify({ ...kept, namespace, charts: [...kept.charts] }));
  } catch { /* it is full, or forbidden: the history ends with this page */ }
}

function forget() {
  try {
    sessionStorage.removeItem(KEPT);
  } catch { /* nothing is kept */ }
}

const nothingKept = () => ({ seconds: [], minutes: [] });
const chartOf = (name) => kept.charts.get(name) || nothingKept();

function record(name, at, admitted, refused) {
  const { seconds, minutes } = chartOf(name);
  const minute = Math.floor(at / 60);
  seconds.push([at, admitted, refused]);
  if (!minutes.length || minutes.at(-1)[0] !== minute) minutes.push([minute, 0, 0, 0]);
  const last = minutes.at(-1); // the minute, how often it was looked, and the sums of what was seen
  last[1] += 1;
  last[2] += admitted;
  last[3] += refused;
  kept.charts.set(name, { seconds: seconds.filter((each) => each[0] > at - SECONDS && each[0] <= at), minutes: minutes.slice(-MINUTES).filter((each) => each[0] > minute - MINUTES) });
}

const total = (tables, name) => tables.reduce((sum, each) => sum + each[name], 0);

function recordAll(view) {
  if (away(view) !== Boolean(kept.away)) kept.changes.unshift([view.at, away(view) ? `The console had no answer: ${view.problem}.` : "The hub answers the console again."]);
  kept.away = away(view);
  if (unknown(view)) return;
  const lines = [[FLEET, view.nodes], ...view.limits.slice(0, LINES).map((each) => [ofLimit(each), [each]]), ...view.stacks.slice(0, LINES).map((each) => [ofStack(each), [each]])];
  for (const [name, tables] of lines) record(name, view.at, total(tables, "admitted_per_s"), total(tables, "refused_per_s"));
  const oldest = Math.floor(view.at / 60) - MINUTES;
  const shown = new Set(lines.map(([name]) => name));
  for (const [name, { minutes }] of kept.charts) if (minutes.at(-1)[0] <= oldest) kept.charts.delete(name);
  for (const name of kept.charts.keys()) if (kept.charts.size > 2 * LINES && !shown.has(name)) kept.charts.delete(name);
  noticeChanges(view);
}

function noticeChanges(view) {
  const nodes = new Map(view.nodes.map((each) => [each.name, each]));
  const limits = new Map(view.limits.map((each) => [each.name, each]));
  const note = (text) => kept.changes.unshift([view.at, text]);
  const noteAll = (names, word, one, several) => { if (names.length) note(names.length === 1 ? `${word} ${names[0]} ${one}.` : `${number(names.length)} ${word.toLowerCase()}s ${several}: ${names.join(", ")}.`); };
  if (nodesBefore) {
    const calls = (each) => `${each.host}:${each.pid} (${each.name})`;
    for (const [name, each] of nodes) {
      const before = nodesBefore.get(name);
      if (before && before.state !== each.state) note(`Node ${calls(each)} was ${before.state} and is ${each.state}${each.grounds.length ? `: ${each.grounds[0]}` : ""}.`);
    }
    const newcomers = (now, before) => [...now].filter(([name]) => !before.has(name)).map(([, each]) => each);
    noteAll(newcomers(nodes, nodesBefore).map(calls), "Node", "has come", "have come");
    noteAll(newcomers(nodesBefore, nodes).map(calls), "Node", "is gone", "are gone");
    noteAll(newcomers(limits, limitsBefore).map(titleOf), "Limit", "has come", "have come");
    noteAll(newcomers(limitsBefore, limits).map(titleOf), "Limit", "is gone", "are gone");
    noteAll([...limits.values()].filter((each) => each.refused && !(limitsBefore.get(each.name) || each).refused).map(titleOf), "Limit", "refuses for the first time", "refuse for the first time");
    for (const [name, each] of limits) {
      const before = limitsBefore.get(name);
      if (before) {
        if (before.said !== each.said) note(`Limit ${planless(name)} was ${spoken(before.said)} and is ${spoken(each.said)}.`);
        if (before.switch !== each.switch) note(`Limit ${titleOf(each)} is ${each.switch}; it was ${before.switch}.`);
        if (before.overadmitted < each.overadmitted) note(`Limit ${titleOf(each)} was exceeded, by ${number(each.overadmitted)} so far.`);
      }
    }
  }
  if (nodesBefore || nodes.size) [nodesBefore, limitsBefore] = [nodes, limits]; // nodes that come to an empty page were there
  kept.changes.length = Math.min(kept.changes.length, CHANGES);
}

// ---------------------------------------------------------------- charts

const SPACE = "http://www.w3.org/2000/svg";

function drawing(tag, attributes, text) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A minute of seconds or an hour of minutes: places from 0 to 100, where a line may have gaps, and what was there.
const SPANS = {
  minute: {
    title: "Last minute", begin: "60 seconds ago", gap: 6,
    points: ({ seconds }, now) => seconds.filter(([at]) => at > now - SECONDS).map(([at, ...rates]) => [100 * (1 - (now - at) / SECONDS), ...rates]),
  },
  hour: {
    title: "Last hour", begin: "60 minutes ago", gap: 2.5,
    points: ({ minutes }, now) => minutes.filter(([minute]) => minute > now / 60 - MINUTES).map(([minute, looks, ...sums]) => [100 * (1 - (Math.floor(now / 60) - minute) / MINUTES), ...sums.map((sum) => sum / looks)]),
  },
};

// The next of 1, 2, 5, 10, 20, ... so that scales are round and do not jump with each value.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}

function line(points, place, most, gap) {
  const height = (value) => (39 - (38 * value) / most).toFixed(2);
  let before = -Infinity;
  return points.map((each) => {
    const text = each[0] - before > gap ? `M${each[0].toFixed(2)} ${height(each[place])}h.3` : `L${each[0].toFixed(2)} ${height(each[place])}`;
    before = each[0];
    return text;
  }).join("");
}

function chart(name, span, className) {
  const { gap, title, points: pointsOf } = SPANS[span];
  const points = pointsOf(chartOf(name), fleet.at);
  const [, admitted, refused] = points.at(-1) || [0, 0, 0];
  const most = roundUp(Math.max(...points.flatMap((each) => each.slice(1)), 1));
  const made = drawing("svg", { class: className, viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img",
    "aria-label": `${title}: admitted ${number(admitted)} and refused ${number(refused)} per second now; the scale ends at ${number(most)}` });
  for (const y of [1, 20, 39]) made.append(drawing("path", { class: "grid", d: `M0 ${y}H100` }));
  const drawn = ["admitted", "refused"].filter((_, place) => points.some((each) => each[place + 1])); // zeros are no line
  for (const which of drawn) made.append(drawing("path", { class: which, d: line(points, which === "admitted" ? 1 : 2, most, gap) }));
  return { made, most, drawn };
}

const spark = (name, span) => chart(name, span, "spark").made;

// A chart as wide as the page, with its scales.
function plot(name, span) {
  const { made, most, drawn } = chart(name, span, "plot");
  const figure = element("figure", null, "plot");
  const title = element("figcaption", SPANS[span].title);
  const { minutes } = chartOf(name);
  const followed = span === "hour" && minutes.length < MINUTES ? ` (${number(minutes.length)} of ${MINUTES} minutes followed in this tab)` : "";
  if (followed) title.append(element("span", followed));
  title.append(...drawn.map((which) => element("span", which, `legend ${which}`)));
  const scale = element("p", null, "scale");
  scale.append(element("span", SPANS[span].begin), element("span", "now"));
  const heights = element("p", null, "heights");
  heights.append(element("span", `${number(most)}/s`), element("span", `${number(most / 2)}/s`), element("span", "0/s"));
  figure.append(title, heights, made, scale);
  return figure;
}

const plots = (name) => [plot(name, "minute"), plot(name, "hour")];

// ---------------------------------------------------------------- keys that have used more than their limit

// The reason beside "6 of 5".
function whyOver(used, capacity, limit) {
  if (used <= capacity) return "";
  const found = ((fleet || {}).limits || []).find((each) => each.name === limit || each.limit === limit) || {};
  const over = `${number(used - capacity)} over: `;
  if (found.switch && found.switch !== "on") return `${over}the limit is switched to ${found.switch}, and refuses nothing.`;
  if (found.bound === 0) return `${over}requests have cost more than was reserved for them, or the quota was lowered.`;
  const most = found.bound && found.name === limit ? `; ${found.policy} may go over by ${number(found.bound)}` : "";
  return `${over}nodes admit at the same time, before they hear of each other${most}.`;
}

function useOf(used, capacity, limit) {
  const text = `${number(used)} of ${number(capacity)} used`;
  const why = whyOver(used, capacity, limit);
  const found = fleet.limits.find((each) => each.name === limit) || { switch: "on" };
  const how = { refuses: used >= capacity || (found.refused_per_s > 0 && used >= NEAR * capacity), enforced: found.switch === "on" };
  return [element("span", text), bar(used, capacity, text, how), ...(why ? [element("small", why, "over")] : [])];
}

// ---------------------------------------------------------------- the overview

function figure(name, value, unit, said, className) {
  const made = document.createElement("div");
  const shown = element("dd", value, className);
  if (unit) shown.append(element("span", ` ${unit}`));
  made.append(element("dt", name), shown, element("dd", said, "said-of"));
  return made;
}

const FIRST = "waiting for the first snapshots";
const figureNow = (name, value, unit, ...more) => (unknown(fleet) ? figure(name, "–", "", more[0]) : figure(name, number(value), unit, ...more));

function stateOfFleet() {
  if (fleet.beginning) return figure("Fleet", "–", "", FIRST, "starting");
  if (away(fleet)) return figure("Fleet", number(fleet.nodes.length), fleet.nodes.length === 1 ? "node" : "nodes", "not heard of while the hub does not answer", "degraded");
  const states = {};
  for (const each of fleet.nodes) states[each.state] = (states[each.state] || 0) + 1;
  const named = Object.entries(states).map(([state, count]) => `${number(count)} ${state}`).join(", ");
  const worst = ["silent", "partitioned", "degraded", "starting"].find((state) => states[state]);
  return figure("Fleet", number(fleet.nodes.length), fleet.nodes.length === 1 ? "node" : "nodes", states.ready === fleet.nodes.length ? "all are ready" : named || "none has reported itself", worst);
}

function stateOfHub() {
  if (fleet.beginning) return figure("Hub", "–", "", FIRST, "starting");
  const heard = fleet.nodes.filter((each) => each.staleness !== null && each.state !== "silent");
  const cut = fleet.nodes.filter((each) => each.state === "silent" || each.state === "partitioned").length;
  const worst = (name) => Math.max(...heard.map((each) => each[name]));
  const times = heard.length ? `staleness up to ${seconds(worst("staleness"))}, exchanges up to ${seconds(worst("round_trip"))}` : "no node has had an answer";
  const [state, className] = away(fleet) ? ["not seen", "partitioned"] : cut ? [`${number(cut)} of ${number(fleet.nodes.length)} cut off`, "partitioned"] : heard.length ? ["answers", "ready"] : ["silent", "degraded"];
  const names = [...new Set(fleet.nodes.map((each) => each.hub))];
  return figure("Hub", state, "", [times, ...names].join("; "), className);
}

function showFigures() {
  const admitted = total(fleet.nodes, "admitted_per_s");
  const refused = total(fleet.nodes, "refused_per_s");
  const firing = fleet.limits.filter((each) => each.refused_per_s).length;
  const off = fleet.limits.filter((each) => each.switch !== "on").length;
  const over = fleet.limits.filter((each) => each.overadmitted).length;
  const notes = [`of ${plural(fleet.limits.length + fleet.left_out, "limit")}`, ...(off ? [`${number(off)} off or in shadow`] : []), ...(over ? [`${plural(over, "limit")} ${over === 1 ? "was" : "were"} exceeded`] : [])];
  byId("figures").replaceChildren(stateOfFleet(), stateOfHub(),
    figureNow("Admitted", admitted, "/s", "requests on all nodes"),
    figureNow("Refused", refused, "/s", unknown(fleet) ? "" : `${percent(refused, admitted + refused)} of requests`, refused ? "degraded" : ""),
    figureNow("Refusing now", firing, firing === 1 ? "limit" : "limits", notes.join(", ")));
}

// Limits whose fullest key has used most of its quota come first.
function showExposed() {
  const fullest = new Map();
  for (const each of fleet.keys) if (!fullest.has(each.limit)) fullest.set(each.limit, each); // the fullest is first
  const part = (each) => { const key = fullest.get(each.name); return key ? key.used / Math.max(1, key.capacity) : 0; };
  const asked = asksOf(fleet.limits).sort((one, other) => part(other) - part(one));
  fill("rows-exposed", asked.slice(0, LIMITS_SHOWN).map((each) => {
    const key = fullest.get(each.name);
    const exposed = [element("span", exposureOf(each)), ...overOf(each)];
    return row([nameOf(each), "name"], [key ? [named(key)] : "–", "key"], [key ? useOf(key.used, key.capacity, each.name) : element("span", "no key is among the fullest", "quiet"), "use"],
      [perSecond(each.refused_per_s), "number"], [spark(ofLimit(each), "minute"), "chart"], [exposed, "number"]);
  }), 6, "No limit was asked yet.");
  byId("exposed-more").hidden = asked.length <= LIMITS_SHOWN;
  byId("exposed-more").firstElementChild.textContent = `All ${plural(fleet.limits.length, "limit")}`;
  sayIdle("exposed-idle", fleet.limits);
}

let lookedAt = 0; // when the logs of switches and contracts were asked for
let changedContracts = [];

// What this page has seen itself, and what the logs at the hub tell, with authors.
async function askLogs() {
  if (!session.switches || Date.now() - lookedAt < LOGS_MS) return;
  lookedAt = Date.now();
  published = await ask("switches").catch(() => published);
  changedContracts = (await ask("history").catch(() => ({ changes: [] }))).changes;
}

const LOGS_MS = 10000;

function showChanges() {
  const turned = ((published || {}).turned || []).map((each) => [each.when, `${each.by} has switched ${each.limit || "all limits"} to ${each.to || "what nodes say"}.`]);
  const contracts = changedContracts.map((each) => [new Date(each.when).getTime() / 1000, `${each.by} has changed ${each.identity === null ? "plans, or several contracts" : `the contract of ${each.identity}`}.`]);
  const all = [...kept.changes, ...turned, ...contracts].sort((one, other) => other[0] - one[0]).slice(0, CHANGES_SHOWN);
  const today = new Date().toDateString();
  const moment = (at) => { const when = new Date(at * 1000); return when.toDateString() === today ? when.toLocaleTimeString() : when.toLocaleString(); };
  fill("rows-changes", all.map(([at, text]) => row([moment(at), "when"], [text, "key"])), 2, `Nothing has changed since ${new Date(kept.since * 1000).toLocaleTimeString()}, when this page was opened.`);
}

function showOverview() {
  showFigures();
  byId("fleet-charts").replaceChildren(...plots(FLEET));
  showExposed();
  showChanges();
  askLogs();
}
