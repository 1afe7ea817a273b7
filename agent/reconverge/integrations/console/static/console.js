// The console's page. Names and keys come from nodes, so they are only ever set as text; the policy lets nothing else run.
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

function link(text, limit, key) {
  const made = element("a", text);
  made.href = `#key?${new URLSearchParams({ limit, key })}`;
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
      [number(each.keys), "number"], [some(each.admitted_per_s), "number"], [some(each.refused_per_s), "number"],
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
const exposureOf = (each) => (each.exposure === null ? "no bound" : each.bound ? `${number(each.exposure)}\u00a0now, ${number(each.bound)}\u00a0at\u00a0worst` : "none");

function showLimits() {
  fill("rows-limits", asksOf(fleet.limits).map((each) => {
    const name = nameOf(each);
    if (!each.declared_alike) name.push(element("small", "nodes declare it differently", "problem"));
    if (each.nodes < fleet.nodes.length) name.push(element("small", `on ${number(each.nodes)} of ${plural(fleet.nodes.length, "node")}`));
    if (each.in_use !== null) name.push(element("small", `${number(each.in_use)} in progress on all nodes`));
    const exposed = [element("span", exposureOf(each))];
    if (each.overadmitted) exposed.push(element("small", `${number(each.overadmitted)} exceeded so far`, "problem"));
    const refused = [element("span", some(each.refused_per_s)), element("small", each.refused ? `${number(each.refused)} in all` : "")];
    if (each.would_refuse) refused.push(element("small", `${number(each.would_refuse)} in shadow`));
    const admitted = [element("span", some(each.admitted_per_s)), element("small", each.admitted ? `${number(each.admitted)} in all` : "")];
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

const named = ({ limit, key }) => (fleet.hashed ? element("span", key) : link(key, limit, key));

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

// ---------------------------------------------------------------- shedding

const percent = (part, whole) => (whole > 0 ? `${number(Math.round((1000 * part) / whole) / 10)}\u00a0%` : "–");
const range = ([least, most], written) => (written(least) === written(most) ? written(least) : `${written(least)} to ${written(most)}`);
const READINGS = {
  limit: (values) => `may have ${range(values, number)} at once in a process`,
  in_flight: (values) => `${range(values, number)} in progress`,
  pressure: (values) => `pressure ${range(values, (value) => value.toFixed(2))}`,
  rejected_fraction: (values) => `rejects ${range(values, (value) => percent(value, 1))}`,
  partitioned: (values) => (values[1] ? "some processes are cut off from the hub" : "hears of the hub"),
};

function tableOf(id, caption, headings) {
  const made = element("table");
  const head = document.createElement("tr");
  headings.forEach(([text, className, term]) => {
    const cell = element("th", text, className);
    cell.scope = "col";
    if (term) cell.title = TERMS[term];
    head.append(cell);
  });
  const top = document.createElement("thead");
  top.append(head);
  const body = document.createElement("tbody");
  body.id = id;
  made.append(top, body);
  const around = element("div", null, "wide");
  around.tabIndex = 0;
  around.setAttribute("role", "region");
  around.setAttribute("aria-label", caption);
  around.append(made);
  return around;
}

const CLASSES = [["Class"], ["Admitted/s", "number"], ["Refused/s", "number"], ["Part that is refused"]];
const LAYERS = [["Layer"], ["Switch"], ["Refused/s", "number"], ["Measures, and has set"]];
const PROCESSES = [["Process"], ["Slots in use"], ["Pressure", "number", "pressure"], ["Rejected", "number"], ["Admitted/s", "number"], ["Refused/s", "number"]];

function showClasses(place, stack) {
  const come = stack.classes.filter((each) => each.admitted + each.refused);
  fill(`stack-${place}-classes`, come.map((each) => {
    const came = each.admitted_per_s + each.refused_per_s;
    const text = came ? `${percent(each.refused_per_s, came)} just now` : `${percent(each.refused, each.admitted + each.refused)} so far`;
    const part = bar(each.refused_per_s, Math.max(came, 1e-9), `${each.name}: ${text}`);
    if (each.refused_per_s) part.className = "full";
    return row([each.name, "name"], [some(each.admitted_per_s), "number"], [some(each.refused_per_s), "number"],
      [[element("span", text), part], "use"]);
  }), 4, "No request has come.");
  const none = stack.classes.filter((each) => !come.includes(each)).map((each) => each.name);
  byId(`stack-${place}-idle`).textContent = come.length && none.length ? `No request has come of the class ${none.join(", ")}.` : "";
}

function showLayers(place, stack) {
  fill(`stack-${place}-layers`, stack.layers.map((each) => {
    const refused = [element("span", some(each.refused_per_s))];
    for (const [name, rate] of Object.entries(each.by_class)) if (rate) refused.push(element("small", `${name} ${number(rate)}`));
    if (each.would_refuse_per_s) refused.push(element("small", `${number(each.would_refuse_per_s)} in shadow`));
    const says = Object.entries(each.readings).map(([name, values]) => (READINGS[name] || ((found) => `${name} ${range(found, number)}`))(values));
    return row([each.name, "name"], [each.switches.join(", ")], [refused, "number"], [says.join("; ") || "–"]);
  }), 4, "");
}

function showProcesses(place, stack) {
  fill(`stack-${place}-processes`, stack.rows.map((each) => {
    const name = [element("span", `${each.host}:${each.pid}`)];
    if (each.silent) name.push(element("small", "silent", "silent"));
    const slots = each.limit === null ? "–" : `${number(each.in_flight)} of ${number(each.limit)}`;
    return row([name, "name"], [each.limit === null ? slots : [element("span", slots), bar(each.in_flight, each.limit, `${slots} slots in use`)]],
      [each.pressure === null ? "–" : each.pressure.toFixed(2), "number"], [each.rejected_fraction ? percent(each.rejected_fraction, 1) : "–", "number"],
      [some(each.admitted_per_s), "number"], [some(each.refused_per_s), "number"]);
  }), 6, "");
}

function partOf(stack, place) {
  const made = element("section", null, "stack");
  const title = element("h3", stack.name);
  title.id = `stack-${place}`;
  made.setAttribute("aria-labelledby", title.id);
  const said = element("p", null, "said");
  said.id = `stack-${place}-said`;
  const line = element("div", null, "plots");
  line.id = `stack-${place}-chart`;
  const columns = element("div", null, "columns");
  const idle = element("p", null, "quiet");
  idle.id = `stack-${place}-idle`;
  const classes = document.createElement("div");
  classes.append(tableOf(`stack-${place}-classes`, `Classes of ${stack.name}`, CLASSES), idle);
  columns.append(classes, tableOf(`stack-${place}-layers`, `Layers of ${stack.name}`, LAYERS));
  made.append(title, said, line, columns, tableOf(`stack-${place}-processes`, `Processes of ${stack.name}`, PROCESSES));
  return made;
}

const processes = (count) => (count === 1 ? "1 process" : `${number(count)} processes`);

function showShedding() {
  const found = fleet.stacks;
  const names = found.map(ofStack).join();
  if (byId("stacks").dataset.names !== names) {
    byId("stacks").dataset.names = names;
    byId("stacks").replaceChildren(...found.map(partOf));
  }
  const left = fleet.stacks_left_out ? ` ${plural(fleet.stacks_left_out, "stack")} could not be shown.` : "";
  byId("shedding-said").textContent = `${found.length ? "What each stack admits and sheds, by class, the most important one first." : "No process has reported a stack of layers."}${left}`;
  found.forEach((stack, place) => {
    const came = stack.admitted_per_s + stack.refused_per_s;
    const slots = stack.limit === null ? "" : ` ${number(stack.in_flight)} of ${number(stack.limit)} slots are in use.`;
    const silent = stack.silent ? ` Silent: ${processes(stack.silent)} more.` : "";
    byId(`stack-${place}-said`).textContent = `${number(stack.admitted_per_s)} admitted and ${number(stack.refused_per_s)} refused a second (${percent(stack.refused_per_s, came)}), in ${processes(stack.processes)}.${slots}${silent}`;
    byId(`stack-${place}-chart`).replaceChildren(...plots(ofStack(stack)));
    showClasses(place, stack);
    showLayers(place, stack);
    showProcesses(place, stack);
  });
  const held = fleet.limits.filter((each) => (each.in_use !== null && !idle(each)) || fleet.waiting[each.name]);
  fill("rows-slots", held.map((each) => row([nameOf(each), "name"],
    [some(each.in_use), "number"], [some(fleet.waiting[each.name]), "number"],
    [some(each.admitted_per_s), "number"], [some(each.refused_per_s), "number"])), 5, "Nothing is in progress under a limit, and nothing waits.");
}

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
  const effect = to === "off" || to === "shadow" ? ` Nothing is refused by ${touched.length === 1 ? "it" : "them"} any more; now that is ${number(refused)} requests a second.` : "";
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
      say("");
    } catch (problem) {
      say(problem.message);
    }
    show();
  };
  dialog.showModal();
}

// ---------------------------------------------------------------- usage

const USAGE_MS = 10000; // how often usage is asked for again while it is looked at
let usageShown = { text: null, at: 0, answer: null };

// Without the year, which is that of now or of the months before.
function shorter(name, kind) {
  if (kind === "minute") return `${name.slice(5, 10)} ${name.slice(11, 16)}`;
  return kind === "hour" ? `${name.slice(5, 10)} ${name.slice(11, 13)}:00` : name;
}

// Bars, with what was refused on top; the table beside says the same in numbers.
function bars(points, what) {
  const refusedOf = (each) => (what === "requests" ? each.refused : 0);
  const most = Math.max(1, ...points.map((each) => each[what] + refusedOf(each)));
  const wide = 100 / points.length;
  const said = `${what === "cost" ? "cost" : "requests admitted and refused"}, from ${points[0].name} to ${points[points.length - 1].name}; at most ${number(most)}`;
  const made = drawing("svg", { class: "bars", viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": said });
  points.forEach((each, place) => {
    const admitted = (40 * Math.max(0, each[what])) / most;
    const refused = (40 * refusedOf(each)) / most;
    const about = drawing("g", {});
    about.append(drawing("title", {}, `${each.name}: cost ${number(each.cost)}, ${number(each.requests)} admitted, ${number(each.refused)} refused`));
    const at = { x: place * wide + wide * 0.1, width: wide * 0.8 };
    about.append(drawing("rect", { ...at, class: "admitted", y: 40 - admitted, height: admitted }), drawing("rect", { ...at, class: "refused", y: 40 - admitted - refused, height: refused }));
    made.append(about);
  });
  const scale = element("p", null, "scale");
  scale.append(element("span", points[0].name), element("span", `at most ${number(most)}`), element("span", points[points.length - 1].name));
  return [made, scale];
}

async function showUsage(asked) {
  const wanted = { period: asked.get("period") || "hour", limit: asked.get("limit") || "", identity: asked.get("identity") || "" };
  const what = asked.get("what") === "cost" ? "cost" : "requests";
  const text = JSON.stringify([wanted, what]);
  if (usageShown.text === text && Date.now() - usageShown.at < USAGE_MS) return;
  if (usageShown.text !== text) {
    byId("usage-period").value = wanted.period;
    byId("usage-identity").value = wanted.identity;
    byId("usage-what").value = what;
  }
  usageShown = { text, at: Date.now() };
  const mine = usageShown;
  try {
    const { points, ...answer } = await ask(`usage?${new URLSearchParams(wanted)}`);
    if (usageShown !== mine) return;
    for (const each of points) each.name = shorter(each.name, answer.period);
    const chosen = byId("usage-limit");
    const names = [...new Set([...answer.limits, wanted.limit])].filter(Boolean).sort();
    if (document.activeElement !== chosen) {
      chosen.replaceChildren(...["", ...names].map((each) => { const made = element("option", each || "all limits"); made.value = each; return made; }));
      chosen.value = wanted.limit;
    }
    const sum = (name) => points.reduce((total, each) => total + each[name], 0);
    const cells = (each) => ["cost", "requests", "refused"].map((name) => [some(each[name]), "number"]);
    const used = [...points].reverse().filter((each) => each.cost || each.requests || each.refused);
    const span = plural(points.length, answer.period);
    const sums = used.length ? `cost ${number(sum("cost"))}, ${number(sum("requests"))} admitted and ${number(sum("refused"))} refused in ${span}.` : `nothing was recorded in ${span}. Guards and contracts record use by a meter alone.`;
    byId("usage-said").textContent = `${wanted.identity || "All customers"}, ${wanted.limit || "all limits"}: ${sums}`;
    byId("usage-chart").replaceChildren(...(used.length ? bars(points, what) : []));
    fill("rows-usage", used.map((each) => row([each.name, "when"], ...cells(each))), 4, "Nothing was recorded.");
    byId("usage-idle").textContent = used.length && used.length < points.length ? `Nothing was used in the other ${plural(points.length - used.length, answer.period)}.` : "";
    byId("usage-top-title").textContent = `Largest customers in ${shorter(answer.present, answer.period)}`;
    fill("rows-usage-top", answer.top.map((each) => row([linkTo("usage", { ...wanted, what, identity: each.identity }, each.identity), "name"], ...cells(each))), 4, "Nothing was recorded in it yet.");
  } catch (problem) {
    if (usageShown !== mine) return;
    byId("usage-said").textContent = problem.message;
    byId("usage-chart").replaceChildren();
    byId("usage-idle").textContent = "";
    for (const id of ["rows-usage", "rows-usage-top"]) fill(id, [], 4, "Nothing to show.");
  }
}

// ---------------------------------------------------------------- contracts

const linkTo = (page, asked, text) => {
  const made = element("a", text);
  made.href = `#${page}?${new URLSearchParams(asked)}`;
  made.dataset.focus = made.href;
  return made;
};
const listed = (limits) => Object.entries(limits || {}).map(([name, said]) => `${name}: ${readable(typeof said === "string" ? said : said.limit)}`).join(", ");
let contractsShown = null; // the text whose customers are shown

async function showContracts(asked) {
  const find = asked.get("find") || "";
  if (contractsShown === find) return;
  contractsShown = find;
  try {
    const answer = await ask(`contracts?${new URLSearchParams({ find })}`);
    const some = answer.found > answer.customers.length ? ` The first ${number(answer.customers.length)} are shown.` : "";
    byId("contracts-said").textContent = `Version ${answer.version}, ${plural(answer.all, "customer")}. Others are on the plan ${answer.unknown}.${some}`;
    fill("rows-plans", answer.plans.map((each) => row([linkTo("plan", { name: each.name }, each.name), "name"], [listed(each.limits)], [number(each.customers), "number"])), 3, "No plan is published.");
    fill("rows-customers", answer.customers.map((each) => row([linkTo("contract", { identity: each.identity }, each.identity), "name"], [each.plan], [listed(each.limits) || "–"])), 3, "No customer has a contract.");
  } catch (problem) {
    contractsShown = null;
    byId("contracts-said").textContent = problem.message;
  }
}

let editing = null; // what is about to be changed: a customer's contract, or a plan

function card(each) {
  const made = element("div", null, "quota");
  const text = `${number(each.used)} of ${number(each.at_once)} used`;
  made.append(element("h3", each.former ? `${each.name} (of the former contract)` : each.name), bar(each.used, each.at_once, text), element("p", `${text}, ${number(each.remaining)} left`));
  if (each.refill_s) made.append(element("small", `something comes back every ${seconds(each.refill_s)}`));
  if (each.switch !== "on") made.append(element("small", `switched ${each.switch}`));
  if (!each.allowed) made.append(element("p", each.wait_s === null ? "Refused; no moment is known at which it is free." : `Refused; free again in ${seconds(each.wait_s)}.`, "problem"));
  return made;
}

function showStanding(answer) {
  byId("contract-sentence").textContent = answer.standing ? answer.standing.sentence : "";
  byId("contract-problem").textContent = answer.problem || "";
  byId("contract-standing").replaceChildren(...(answer.standing ? answer.standing.limits.map(card) : []));
}

function field(name, label, value, hint) {
  const made = document.createElement("p");
  const input = element("input");
  input.id = `edit-${name}`;
  input.name = name;
  input.value = value;
  input.placeholder = hint || "";
  input.autocomplete = "off";
  input.disabled = !session.changes;
  const said = element("label", label);
  said.htmlFor = input.id;
  made.append(said, input);
  return made;
}

function showFields(plan) {
  if (editing.page === "plan") {
    byId("edit-fields").replaceChildren(...Object.entries(editing.answer.limits).map(([name, said]) => field(name, name, readable(said))));
    return;
  }
  const chosen = element("select");
  chosen.id = "edit-the-plan";
  chosen.append(...Object.keys(editing.answer.plans).map((each) => element("option", each)));
  chosen.value = plan;
  chosen.disabled = !session.changes;
  chosen.addEventListener("change", () => showFields(chosen.value));
  const said = element("label", "Plan");
  said.htmlFor = chosen.id;
  const first = document.createElement("p");
  first.append(said, chosen);
  const own = (editing.answer.contract || {}).limits || {};
  const texts = Object.entries(editing.answer.plans[plan] || {}).map(([name, usual]) => {
    const mine = own[name];
    const text = mine === undefined ? "" : readable(typeof mine === "string" ? mine : mine.limit);
    return field(name, `${name} (by the plan ${readable(usual)})`, text, readable(usual));
  });
  byId("edit-fields").replaceChildren(first, ...texts);
}

// What the fields say, on top of what the contract or the plan has said: what is not in a field stays.
function saidByFields() {
  const limits = {};
  for (const input of byId("edit-fields").querySelectorAll("input")) limits[input.name] = input.value.trim();
  if (editing.page === "plan") {
    const said = structuredClone(editing.answer.said);
    for (const [name, text] of Object.entries(limits)) {
      if (typeof said.limits[name] === "string") said.limits[name] = text; else said.limits[name].limit = text;
    }
    return { customer: null, plan: editing.name, said, version: editing.answer.version };
  }
  const said = structuredClone(editing.answer.contract || {});
  said.plan = byId("edit-the-plan").value;
  const before = said.limits || {};
  said.limits = {};
  for (const [name, text] of Object.entries(limits)) {
    if (text) said.limits[name] = typeof before[name] === "object" ? { ...before[name], limit: text } : text;
  }
  return { customer: editing.name, plan: null, said, version: editing.answer.version };
}

async function showContract(page, asked) {
  const name = asked.get(page === "plan" ? "name" : "identity") || "";
  const now = Date.now();
  const fresh = editing && editing.page === page && editing.name === name;
  if (fresh && (editing.busy || page === "plan" || now - editing.at < STANDING_MS)) return;
  if (!fresh) {
    editing = { page, name, at: now, answer: null };
    for (const id of ["contract-standing", "edit-fields", "predicted"]) byId(id).replaceChildren();
    for (const id of ["contract-sentence", "contract-problem"]) byId(id).textContent = "";
    byId("edit").hidden = true;
    byId("title-contract").textContent = page === "plan" ? `The plan ${name}` : name;
  }
  const mine = editing;
  mine.busy = true;
  mine.at = now;
  try {
    const answer = await ask(page === "plan" ? `plan?${new URLSearchParams({ name })}` : `customer?${new URLSearchParams({ identity: name })}`);
    if (editing !== mine) return;
    if (page === "contract") showStanding(answer);
    else byId("contract-sentence").textContent = `${plural(answer.customers, "customer")} on it.`;
    if (!mine.answer) {
      mine.answer = answer;
      byId("edit").hidden = !session.changes;
      showFields(page === "plan" ? null : (answer.contract || {}).plan || Object.keys(answer.plans)[0]);
    }
  } catch (problem) {
    if (editing === mine) byId("contract-problem").textContent = problem.message;
  } finally {
    mine.busy = false;
  }
}

const effects = (title, found) => (found.length ? [element("h3", title), list(found.map((each) => `${each.customer}: ${number(each.requests)} of ${plural(each.of, "request")} (${each.limits.join(", ")})`))] : []);

function list(texts) {
  const made = document.createElement("ul");
  made.append(...texts.map((each) => element("li", each)));
  return made;
}

async function predict() {
  const change = saidByFields();
  const shown = byId("predicted");
  try {
    const answer = await ask("predict", change);
    const parts = [element("h3", "This would be said otherwise"), list(answer.differences.length ? answer.differences : ["nothing"])];
    parts.push(element("p", `It holds for ${plural(answer.customers, "customer")}, on all nodes.`));
    if (answer.then) parts.push(list([`Now: ${answer.now}`, `Then: ${answer.then}`]));
    if (answer.recording) {
      const of = answer.recording;
      parts.push(element("p", `Of the ${plural(of.requests, "request")} in ${of.name}, ${number(of.newly_refused)} would be newly refused, and ${number(of.newly_admitted)} newly admitted.`));
      parts.push(...effects("Newly refused", of.refused), ...effects("Newly admitted", of.admitted));
    } else if (answer.problem) parts.push(element("p", answer.problem, "problem"));
    if (answer.differences.length) {
      const save = element("button", "Save", "danger");
      save.type = "button";
      save.addEventListener("click", () => saveChange(change, save));
      parts.push(save);
    }
    shown.replaceChildren(...parts);
  } catch (problem) {
    shown.replaceChildren(element("p", problem.message, "problem"));
  }
}

async function saveChange(change, button) {
  button.disabled = true;
  try {
    const answer = await ask("change", change);
    contractsShown = null;
    editing = null;
    const { page, asked } = current();
    await showContract(page, asked);
    byId("predicted").replaceChildren(element("p", `Saved as version ${answer.version}. Nodes obey within one interval.`));
  } catch (problem) {
    byId("predicted").replaceChildren(element("p", problem.message, "problem"));
  }
}

let auditedAt = 0;

async function showAudit() {
  if (Date.now() - auditedAt < STANDING_MS) return;
  auditedAt = Date.now();
  const code = (said) => (said === null ? "nothing" : element("code", JSON.stringify(said)));
  try {
    const { changes } = await ask("history");
    fill("rows-audit", changes.map((each) => row([new Date(each.when).toLocaleString()], [each.by, "name"], [each.identity === null ? "plans, or several customers" : each.identity, "name"],
      [code(each.before)], [code(each.after)], [each.version, "number"])), 6, "No contract was changed.");
  } catch (problem) {
    fill("rows-audit", [], 6, problem.message);
  }
  published = await ask("switches").catch(() => published);
  const turned = (published || {}).turned || [];
  fill("rows-turned", turned.map((each) => row([new Date(each.when * 1000).toLocaleString()], [each.by, "name"], [each.limit || "all limits", "name"], [each.to || "as nodes say"])), 4,
    "None is known.");
  byId("turned-by").textContent = (published || {}).turned_by_all
    ? "The log at the hub: what consoles and commands have published in the last 31 days, each under the name that it has given. What publishers of older versions and other programs have turned is not in it."
    : "What this console has turned since it was started: no log can be read at this hub, so others, and the command, are not known here.";
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
    if (session.switches) published = await ask("switches").catch((problem) => { say(problem.message); return null; });
  } catch (problem) {
    say(problem.message);
    return;
  }
  addEventListener("hashchange", () => { show(); byId("main").focus(); });
  document.addEventListener("visibilitychange", tick);
  const leave = () => remember(session.namespace);
  addEventListener("pagehide", leave);
  byId("sign-out").addEventListener("submit", () => { removeEventListener("pagehide", leave); forget(); });
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
