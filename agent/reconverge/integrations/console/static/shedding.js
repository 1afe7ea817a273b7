// The console's page about stacks of layers: what each admits and sheds, by class, layer and process.
"use strict";

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
    return row([each.name, "name"], [perSecond(each.admitted_per_s), "number"], [perSecond(each.refused_per_s), "number"],
      [[element("span", text), part], "use"]);
  }), 4, "No request has come.");
  const none = stack.classes.filter((each) => !come.includes(each)).map((each) => each.name);
  byId(`stack-${place}-idle`).textContent = come.length && none.length ? `No request has come of the class ${none.join(", ")}.` : "";
}

function showLayers(place, stack) {
  fill(`stack-${place}-layers`, stack.layers.map((each) => {
    const refused = [element("span", perSecond(each.refused_per_s))];
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
      [perSecond(each.admitted_per_s), "number"], [perSecond(each.refused_per_s), "number"]);
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
    byId(`stack-${place}-said`).textContent = unknown(fleet) ? "What it does now is not known." : `${number(stack.admitted_per_s)} admitted and ${number(stack.refused_per_s)} refused a second (${percent(stack.refused_per_s, came)}), in ${processes(stack.processes)}.${slots}${silent}`;
    byId(`stack-${place}-chart`).replaceChildren(...plots(ofStack(stack)));
    showClasses(place, stack);
    showLayers(place, stack);
    showProcesses(place, stack);
  });
  const held = fleet.limits.filter((each) => (each.in_use !== null && !idle(each)) || fleet.waiting[each.name]);
  fill("rows-slots", held.map((each) => row([nameOf(each), "name"],
    [some(each.in_use), "number"], [some(fleet.waiting[each.name]), "number"],
    [perSecond(each.admitted_per_s), "number"], [perSecond(each.refused_per_s), "number"])), 5, "Nothing is in progress under a limit, and nothing waits.");
}
