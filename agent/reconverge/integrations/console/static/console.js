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
  return `${value.toFixed(1)} s`;
}
const WINDOWS = { 1: "second", 60: "minute", 3600: "hour", 86400: "day" };
const readable = (text) => text.replace(/\/(1|60|3600|86400)s(?![0-9])/g, (_, window) => `/${WINDOWS[window]}`);
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
  const names = limits.filter(idle).map((each) => `${each.name} (${readable(each.said)})`);
  byId(id).textContent = names.length ? `Never asked: ${names.join(", ")}.` : "";
}

const nameOf = (each) => [element("strong", each.name), element("small", `${readable(each.said)}, ${each.policy}`)];

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
    if (each.in_use !== null) name.push(element("small", `${number(each.in_use)} in progress on all nodes`));
    const exposed = [element("span", exposureOf(each))];
    if (each.overadmitted) exposed.push(element("small", `${number(each.overadmitted)} exceeded so far`, "problem"));
    const refused = [element("span", perSecond(each.refused_per_s)), element("small", each.refused ? `${number(each.refused)} in all` : "")];
    if (each.would_refuse) refused.push(element("small", `${number(each.would_refuse)} in shadow`));
    const admitted = [element("span", perSecond(each.admitted_per_s)), element("small", each.admitted ? `${number(each.admitted)} in all` : "")];
    return row([name, "name"], [each.switch], [admitted, "number"], [refused, "number"],
      [spark(ofLimit(each), "minute"), "chart"], [spark(ofLimit(each), "hour"), "chart"], [exposed, "number"]);
  }), 7, "No limit was asked yet.");
  sayIdle("limits-idle", fleet.limits);
}

function bar(used, most, text) {
  const made = document.createElement("progress");
  made.max = Math.max(1, most);
  made.value = Math.min(used, made.max);
  if (used >= most) made.className = "full";
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
    return row([named(each), "key"], [each.limit, "name"], [useOf(each.used, each.capacity, each.limit), "use"]);
  }), 3, "No key has used anything of a limit just now.");
  fill("rows-denials", fleet.denials.map((each) => {
    const keys = each.keys.flatMap((key, place) => [...(place ? [", "] : []), named({ limit: each.limit, key })]);
    return row([new Date(each.at * 1000).toLocaleTimeString(), "when"], [each.limit, "name"], [number(each.count), "number"],
      [keys.length ? keys : element("span", "not known", "quiet"), "key"]);
  }), 4, "Nothing was refused since the console was opened.");
}

async function showKey(asked) {
  const limit = asked.get("limit") || "";
  const key = asked.get("key") || "";
  byId("title-key").textContent = `${key} under ${limit}`;
  try {
    const answer = await ask(`key?${new URLSearchParams({ limit, key })}`);
    if (current().page !== "key" || current().asked.get("key") !== key) return;
    byId("key-problem").textContent = answer.problem;
    byId("quotas").replaceChildren(...answer.quotas.map((each) => {
      const made = element("div", null, "quota");
      made.append(element("h3", readable(each.said)), ...useOf(each.used, each.limit, each.name), element("p", each.sentence));
      return made;
    }));
  } catch (problem) {
    byId("key-problem").textContent = problem.message;
    byId("quotas").replaceChildren();
  }
}

// ---------------------------------------------------------------- switches

function showSwitches() {
  if (!published) return;
  const until = published.expires ? ` It holds until ${new Date(published.expires * 1000).toLocaleString()}.` : "";
  byId("switches-said").textContent = published.problem || (published.version
    ? `Version ${published.version} is published for all nodes.${until}`
    : "No switch is published: each node goes by its own.");
  const all = { name: "all limits", limit: null, published: published.switch, force: [...new Set(fleet.limits.map((each) => each.switch))].join(", ") };
  const each = [...new Set(fleet.limits.map((one) => one.limit))].map((name) => {
    const quotas = fleet.limits.filter((one) => one.limit === name);
    return { name, limit: name, published: published.limits[name] || null, force: [...new Set(quotas.map((one) => one.switch))].join(", "),
      quotas: quotas.map((one) => one.name).filter((one) => one !== name).join(", ") };
  });
  fill("rows-switches", [all, ...each].map((one) => {
    const buttons = ["on", "shadow", "off", null].map((to) => {
      const made = element("button", to || "as nodes say");
      made.type = "button";
      made.disabled = !session.changes;
      made.dataset.focus = `${one.limit}-${to}`;
      made.setAttribute("aria-pressed", String(one.published === to));
      made.setAttribute("aria-label", `switch ${one.name} ${to || "as nodes say"}`);
      made.addEventListener("click", () => turn(one, to));
      return made;
    });
    const name = one.quotas ? [element("strong", one.name), element("small", one.quotas)] : element("strong", one.name);
    return row([name, "name"], [one.published || "–"], [one.force || "–"], [buttons.flatMap((made) => [made, " "])]);
  }), 4, "");
}

let pending = null; // what is about to be switched, while that is asked about

function sayImpact() {
  const { one, to } = pending;
  const touched = fleet.limits.filter((each) => one.limit === null || each.limit === one.limit);
  const nodes = fleet.nodes.length;
  const refused = touched.reduce((sum, each) => sum + each.refused_per_s, 0);
  byId("confirm-title").textContent = to === "shadow" ? `Put ${one.name} into shadow mode?` : to ? `Turn ${one.name} ${to}?` : `Let each node decide about ${one.name}?`;
  const effect = to === "off" || to === "shadow" ? ` Nothing is refused by ${touched.length === 1 ? "it" : "them"} any more${unknown(fleet) ? "" : `; now that is ${number(refused)} requests a second`}.` : "";
  byId("confirm-said").textContent = `This is obeyed by ${plural(nodes, "node")}, for ${plural(touched.length, "limit")}.${effect}`;
  byId("confirm-yes").textContent = to === "shadow" ? "Put into shadow mode" : to ? `Turn ${to}` : "Let nodes decide";
}

function turn(one, to) {
  pending = { one, to };
  sayImpact();
  const dialog = byId("confirm");
  dialog.returnValue = "";
  dialog.onclose = async () => {
    pending = null;
    if (dialog.returnValue !== "yes") return;
    try {
      published = await ask("switch", { to, limit: one.limit });
      fail("");
    } catch (problem) {
      fail(problem.message);
    }
    show();
  };
  dialog.showModal();
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

function mine(each) {
  const made = element("div", null, "quota");
  const text = `${number(each.used)} of ${number(each.at_once)} used`;
  made.append(element("h3", each.former ? `${each.name} (of your former contract)` : each.name));
  made.append(element("p", each.window_s ? `${number(each.quota)} in ${seconds(each.window_s)}` : `${number(each.quota)} at once`, "quiet"));
  made.append(bar(each.used, each.at_once, `${each.name}: ${text}`), element("p", `${text}, ${number(each.remaining)} left`));
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
