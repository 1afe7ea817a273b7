// The console's page about usage: bars and a table of one limit or all, of one customer or all, period by period.
"use strict";

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
  const said = `${what === "cost" ? "cost" : "charges admitted and refused"}, from ${points[0].name} to ${points[points.length - 1].name}; at most ${number(most)}`;
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
    const sums = used.length ? `cost ${number(sum("cost"))}, ${plural(sum("requests"), "charge")} admitted and ${plural(sum("refused"), "charge")} refused in ${span}. A request is charged to each of its limits.` : `nothing was recorded in ${span}. Guards and contracts record use by a meter alone.`;
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
