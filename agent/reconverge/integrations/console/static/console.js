// The console's page. Names and keys come from nodes, so they are only ever set as text; the policy lets nothing else run.
//
// All scripts of the page share one scope. This script has the functions with which the others draw. It is loaded last,
// and starts the page. The page of a customer loads no other script.
"use strict";

const PAGES = ["overview", "nodes", "limits", "keys", "key", "shedding", "usage", "contracts", "contract", "plan", "switches", "audit"];
const SECTIONS = { plan: "contract" }; // pages that are in the section of another one
const STANDING_MS = 3000; // how often it is asked how a customer stands
const STALE_MS = 5000;
const byId = (id) => document.getElementById(id);

let session = null;
let fleet = null;
let published = null;
let stream = null;
let heardAt = 0;

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}

function row(...cells) {
  const made = document.createElement("tr");
  for (const [content, className] of cells) {
    const cell = element("td", null, className);
    cell.append(...[content].flat());
    made.append(cell);
  }
  return made;
}

// On a narrow screen a row is a block, in which each cell has the heading of its column before it.
function label(body, rows) {
  const headings = [...body.parentElement.querySelectorAll("th")].map((each) => each.textContent);
  for (const each of rows) [...each.cells].forEach((cell, place) => { if (cell.colSpan === 1) cell.dataset.label = headings[place]; });
  return rows;
}

// Rows are replaced in place, so that the focus stays where it is and nothing jumps.
function fill(id, rows, columns, nothing) {
  const body = byId(id);
  const focused = body.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  if (!rows.length) {
    const cell = element("td", nothing, "quiet");
    cell.colSpan = columns;
    const empty = document.createElement("tr");
    empty.append(cell);
    rows = [empty];
  }
  body.replaceChildren(...label(body, rows));
  if (focused) for (const each of body.querySelectorAll("[data-focus]")) if (each.dataset.focus === focused) each.focus();
}

function linkTo(page, asked, text) {
  const made = element("a", text);
  made.href = `#${page}?${new URLSearchParams(asked)}`;
  made.dataset.focus = made.href;
  return made;
}

const number = (value) => (value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1));
const UNITS = [[86400, "days"], [3600, "hours"], [60, "minutes"]]; // each from two of it on
function seconds(value) {
  if (value === null) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  for (const [unit, name] of UNITS) if (value >= 2 * unit) return `${number(value / unit)} ${name}`;
  return `${number(value)} s`;
}
const WINDOWS = { 1: "second", 60: "minute", 3600: "hour", 86400: "day" };
const readable = (text) => text.replace(/\/(1|60|3600|86400)s(?![0-9])/g, (_, window) => `/${WINDOWS[window]}`);
// For reading alone: what is typed into a form stays a limit string.
const spoken = (text) => readable(text).replace(/^(\d+)\/(\d+)s/, (_, quota, window) => `${number(Number(quota))} in ${seconds(Number(window))}`);
const planless = (name) => name.replace(/@.*/, ""); // without the quota of a plan in contracts, as in api@5/60s
const titleOf = ({ name, said }) => (name === planless(name) ? name : `${planless(name)}, ${spoken(said)}`);
const titled = (name) => titleOf(fleet.limits.find((each) => each.name === name) || { name: planless(name) });
const some = (value) => (value ? number(value) : "–"); // nothing is no figure that has to be read
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// ---------------------------------------------------------------- pages

function showNodes() {
  fill("rows-nodes", fleet.nodes.map((each) => {
    const health = [element("span", each.state, each.state)];
    for (const ground of each.grounds) health.push(element("small", ground));
    const name = [element("span", `${each.host}:${each.pid}`), element("small", each.name)];
    return row([name, "name"], [health], [seconds(each.staleness), "number"], [seconds(each.round_trip), "number"],
      [number(each.keys), "number"], [perSecond(each.admitted_per_s), "number"], [perSecond(each.refused_per_s), "number"],
      [each.policies.join(", ")]);
  }), 8, "No node has reported itself yet. Nodes without keys take up to ten seconds.");
}

// Limits that were never asked have no rows, which would be rows of zeros; a sentence names them.
const idle = (each) => !each.admitted && !each.refused && !each.would_refuse && !each.in_use;
const asksOf = (limits) => limits.filter((each) => !idle(each));

function sayIdle(id, limits) {
  const names = limits.filter(idle).map((each) => `${planless(each.name)} (${spoken(each.said)})`);
  byId(id).textContent = names.length ? `Never asked: ${names.join(", ")}.` : "";
}

const nameOf = (each) => [element("strong", planless(each.name)), element("small", `${spoken(each.said)}, ${each.policy}`),
  ...(each.switch === "on" ? [] : [element("small", `switched to ${each.switch}`, "degraded")])];
const overOf = (each) => (each.overadmitted ? [element("small", `exceeded by ${number(each.overadmitted)} so far`, "problem")] : []);

// While the hub does not answer, and before nodes have left snapshots, it is not known what they do; only bounds hold.
const away = (view) => view.scope === "fleet" && view.problem !== "";
const unknown = (view) => away(view) || view.beginning;
const perSecond = (value) => (unknown(fleet) ? "–" : some(value));

function exposureOf({ exposure, bound }) {
  if (exposure === null) return "no bound";
  if (!bound) return "none";
  if (unknown(fleet)) return `not known; at\u00a0most\u00a0${number(bound)}`;
  return exposure === bound ? `${number(bound)}\u00a0now\u00a0and\u00a0at\u00a0worst` : `${number(exposure)}\u00a0now, ${number(bound)}\u00a0at\u00a0worst`;
}

function showLimits() {
  fill("rows-limits", asksOf(fleet.limits).map((each) => {
    const name = nameOf(each);
    if (!each.declared_alike) name.push(element("small", "nodes declare it differently", "problem"));
    if (each.nodes < fleet.nodes.length) name.push(element("small", `on ${number(each.nodes)} of ${plural(fleet.nodes.length, "node")}`));
    if (each.in_use !== null) name.push(element("small", `about ${number(each.in_use)} in progress on all nodes`));
    const exposed = [element("span", exposureOf(each)), ...overOf(each)];
    const refused = [element("span", perSecond(each.refused_per_s)), element("small", each.refused ? `${number(each.refused)} in all` : "")];
    if (each.would_refuse) refused.push(element("small", `${number(each.would_refuse)} in shadow`));
    const admitted = [element("span", perSecond(each.admitted_per_s)), element("small", each.admitted ? `${number(each.admitted)} in all` : "")];
    return row([name, "name"], [each.switch], [admitted, "number"], [refused, "number"],
      [spark(ofLimit(each), "minute"), "chart"], [spark(ofLimit(each), "hour"), "chart"], [exposed, "number"]);
  }), 7, "No limit was asked yet.");
  sayIdle("limits-idle", fleet.limits);
}

const NEAR = 0.9; // from this part of a quota on a bar is of another colour

function bar(used, most, text, { refuses = used >= most, enforced = true } = {}) {
  const made = document.createElement("progress");
  made.max = Math.max(1, most);
  made.value = Math.min(used, made.max);
  made.className = !enforced ? "neutral" : refuses ? "full" : used >= NEAR * most ? "near" : "";
  made.setAttribute("aria-label", text);
  return made;
}

const named = ({ limit, key }) => (fleet.hashed ? element("span", key) : linkTo("key", { limit, key }, key));

function showKeys() {
  byId("hashed").hidden = !fleet.hashed;
  const chosen = byId("find-limit");
  const names = [...new Set(fleet.limits.map((each) => each.limit))].sort();
  if (names.join() !== [...chosen.options].map((each) => each.value).join()) {
    const before = chosen.value;
    chosen.replaceChildren(...names.map((each) => element("option", each)));
    if (names.includes(before)) chosen.value = before;
  }
  fill("rows-keys", fleet.keys.map((each) => {
    return row([named(each), "key"], [titled(each.limit), "name"], [useOf(each.used, each.capacity, each.limit), "use"]);
  }), 3, "No key has used anything of a limit just now.");
  fill("rows-denials", fleet.denials.map((each) => {
    const keys = each.keys.flatMap((key, place) => [...(place ? [", "] : []), named({ limit: each.limit, key })]);
    return row([new Date(each.at * 1000).toLocaleTimeString(), "when"], [titled(each.limit), "name"], [number(each.count), "number"],
      [keys.length ? keys : element("span", "not known", "quiet"), "key"]);
  }), 4, "Nothing was refused since the console was opened.");
}

async function showKey(asked) {
  const limit = asked.get("limit") || "";
  const key = asked.get("key") || "";
  byId("title-key").textContent = `${key} under ${planless(limit)}`;
  try {
    const answer = await ask(`key?${new URLSearchParams({ limit, key })}`);
    if (current().page !== "key" || current().asked.get("key") !== key) return;
    byId("key-problem").textContent = answer.problem;
    byId("quotas").replaceChildren(...answer.quotas.map((each) => {
      const made = element("div", null, "quota");
      made.append(element("h3", spoken(each.said)), ...useOf(each.used, each.limit, each.name), element("p", each.sentence));
      return made;
    }));
  } catch (problem) {
    byId("key-problem").textContent = problem.message;
    byId("quotas").replaceChildren();
  }
}

// ---------------------------------------------------------------- what is shown, and when

function current() {
  const [page, asked] = location.hash.replace(/^#/, "").split("?");
  return { page: PAGES.includes(page) ? page : "overview", asked: new URLSearchParams(asked || "") };
}

function say(problem) {
  byId("problem").hidden = !problem;
  byId("problem").textContent = problem;
}

// The error of an action stays until it is dismissed or an action succeeds; the state of the fleet does not replace it.
function fail(problem) {
  byId("failed").hidden = !problem;
  byId("failed-said").textContent = problem;
}

function show() {
  const { page, asked } = current();
  const section = SECTIONS[page] || page;
  for (const each of PAGES) if (!SECTIONS[each]) byId(`page-${each}`).hidden = each !== section;
  const parents = { key: "keys", contract: "contracts", plan: "contracts" };
  if (section !== "contract") editing = null;
  if (page !== "contracts") contractsShown = null;
  for (const each of document.querySelectorAll("nav a")) {
    const here = each.hash === `#${parents[page] || page}`;
    if (here) each.setAttribute("aria-current", "page"); else each.removeAttribute("aria-current");
  }
  if (!fleet) return;
  if (page === "overview") showOverview();
  if (page === "nodes") showNodes();
  if (page === "limits") showLimits();
  if (page === "keys") showKeys();
  if (page === "key") showKey(asked);
  if (page === "shedding") showShedding();
  if (page === "usage") showUsage(asked);
  if (page === "contracts") showContracts(asked);
  if (section === "contract") showContract(page, asked);
  if (page === "switches") showSwitches();
  if (page === "audit") showAudit();
}

async function ask(path, change) {
  const fields = change ? { "content-type": "application/json", "x-reconverge-console": session.word } : {};
  const response = await fetch(path, { method: change ? "POST" : "GET", headers: fields, body: change ? JSON.stringify(change) : undefined });
  if (response.status === 401) location.reload();
  const answer = await response.json().catch(() => ({})); // a proxy, or a limiter, may answer in words of its own
  if (!response.ok) throw new Error(answer.detail || `status ${response.status}`);
  return answer;
}

function take(view) {
  fleet = view;
  heardAt = Date.now();
  recordAll(view);
  say(view.problem);
  show();
  if (pending) sayImpact();
}

// A page that is not looked at follows nothing: the stream ends, and with it the snapshots of all nodes.
function follow() {
  if (document.hidden) {
    if (stream) stream.close();
    stream = null;
    return;
  }
  if (stream && stream.readyState !== EventSource.CLOSED) return;
  if (stream) ask("session").catch(() => {}); // which has the page signed in again, if that is what is wrong
  stream = new EventSource("stream");
  stream.onmessage = (event) => take(JSON.parse(event.data));
}

function tick() {
  const age = Date.now() - heardAt;
  byId("live").textContent = document.hidden ? "paused" : heardAt && age < STALE_MS ? "live" : "waiting for the console";
  follow();
}

async function begin() {
  try {
    session = await ask("session");
    byId("namespace").textContent = session.namespace;
    recall(session.namespace);
    explain();
    byId("sign-out").hidden = !session.signs_out;
    for (const name of ["switches", "contracts", "audit"]) byId(`${name}-link`).hidden = !session.switches;
    if (session.switches) published = await ask("switches").catch((problem) => { fail(problem.message); return null; });
  } catch (problem) {
    say(problem.message);
    return;
  }
  addEventListener("hashchange", () => { show(); byId("main").focus(); });
  document.addEventListener("visibilitychange", tick);
  const leave = () => remember(session.namespace);
  addEventListener("pagehide", leave);
  byId("sign-out").addEventListener("submit", () => { removeEventListener("pagehide", leave); forget(); });
  byId("dismiss").addEventListener("click", () => fail(""));
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `key?${new URLSearchParams({ limit: byId("find-limit").value, key: byId("find-key").value })}`;
  });
  byId("find-customer").addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `contract?${new URLSearchParams({ identity: byId("find-identity").value })}`;
  });
  byId("find-usage").addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `usage?${new URLSearchParams(Object.fromEntries(["period", "limit", "identity", "what"].map((name) => [name, byId(`usage-${name}`).value])))}`;
  });
  byId("edit").addEventListener("submit", (event) => { event.preventDefault(); predict(); });
  byId("edit-fields").addEventListener("input", () => byId("predicted").replaceChildren());
  setInterval(tick, 1000);
  if (session.switches) setInterval(async () => { if (!document.hidden && current().page === "switches") published = await ask("switches").catch(() => published); }, 3000);
  show();
  tick();
}

// ---------------------------------------------------------------- the page of a customer

const MINE_MS = 5000;

// Rounded up, as the sentence is: a customer that comes at the announced moment is not too early.
function wait(value) {
  for (const [unit, name] of UNITS) if (value > 2 * unit) return `${number(Math.ceil(value / unit))} ${name}`;
  return value > 10 ? `${Math.ceil(value)} s` : `${Math.max(1, Math.ceil(value * 10)) / 10} s`;
}

// What is left, and how much may be used beyond the quota.
function leftOf({ used, remaining, at_once: quota }) {
  const more = Math.min(remaining, Math.max(0, used + remaining - quota));
  return `${number(used)} of ${number(quota)} used, ${number(remaining - more)} left${more ? `, and ${number(more)} more are tolerated` : ""}`;
}

// Why more is used than the quota, without a word of nodes.
function whyMore({ used, remaining, at_once: quota }) {
  if (used <= quota) return "";
  return `${number(used - quota)} over${remaining ? ", which is tolerated" : ": requests came at the same time, or cost more than was expected, or the limit was lowered"}.`;
}

function mine(each) {
  const made = element("div", null, "quota");
  const text = leftOf(each);
  made.append(element("h3", each.former ? `${each.name} (of your former contract)` : each.name));
  made.append(element("p", each.window_s ? `${number(each.quota)} in ${seconds(each.window_s)}` : `${number(each.quota)} at once`, "quiet"));
  made.append(bar(each.used, each.at_once, `${each.name}: ${text}`, { refuses: !each.allowed }), element("p", text));
  if (each.used > each.at_once) made.append(element("small", whyMore(each)));
  if (!each.allowed) made.append(element("p", each.wait_s === null ? "Used up; no moment is known at which it is free." : `Used up; free again in ${wait(each.wait_s)}.`, "problem"));
  else if (each.refill_s) made.append(element("small", `something comes back every ${seconds(each.refill_s)}`));
  return made;
}

async function showMine() {
  if (document.hidden) return;
  try {
    const response = await fetch(`my-limits.json${location.search}`);
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.detail || `status ${response.status}`);
    byId("my-name").textContent = answer.identity;
    const others = answer.left_out ? ` ${answer.left_out === 1 ? "A further limit counts" : `${number(answer.left_out)} further limits count`} by more than you, such as by user, and cannot be shown here.` : "";
    byId("my-sentence").textContent = `${answer.sentence || "No limit of yours can be shown just now."}${others}`;
    byId("my-cards").replaceChildren(...answer.limits.map(mine));
    byId("my-end").textContent = `This link holds until ${new Date(answer.expires * 1000).toLocaleString()}.`;
    byId("my-problem").textContent = "";
  } catch (problem) {
    byId("my-problem").textContent = problem.message;
  }
}

if (byId("my-limits")) {
  showMine();
  setInterval(showMine, MINE_MS);
  document.addEventListener("visibilitychange", showMine);
} else begin();
