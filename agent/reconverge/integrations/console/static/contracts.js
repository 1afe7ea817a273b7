// The console's pages about contracts: plans, customers, a customer's use, the effect of a change, and the audit log.
"use strict";

const listed = (limits) => Object.entries(limits || {}).map(([name, said]) => `${name}: ${spoken(typeof said === "string" ? said : said.limit)}`).join(", ");
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
  const text = leftOf(each);
  const how = { refuses: !each.allowed, enforced: each.switch === "on" };
  made.append(element("h3", each.former ? `${each.name} (of the former contract)` : each.name), bar(each.used, each.at_once, text, how), element("p", text));
  if (each.used > each.at_once) made.append(element("small", each.remaining ? whyMore(each) : whyOver(each.used, each.at_once, each.name)));
  if (each.refill_s) made.append(element("small", `something comes back every ${seconds(each.refill_s)}`));
  if (each.switch !== "on") made.append(element("small", `switched ${each.switch}`));
  if (!each.allowed) made.append(element("p", each.wait_s === null ? "Refused; no moment is known at which it is free." : `Refused; free again in ${wait(each.wait_s)}.`, "problem"));
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
