// The console's page of switches, and the question before one is turned.
"use strict";

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
      quotas: quotas.length > 1 || quotas[0].name !== name ? quotas.map((one) => spoken(one.said)).join("; ") : "" };
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
