// The drills that have ended: verdict, details on demand, the report.

import { get, hasToken, send } from "./api.js";
import { badge, byId, make, quantity, seconds, time } from "./view.js";

const shown = new Map();

/** Shows these at the top; those that are there already stay as they are. */
export function show(drills) {
  const list = byId("results");
  for (const drill of drills.toReversed()) {
    if (!shown.has(drill.id)) {
      shown.set(drill.id, row(drill));
      list.prepend(shown.get(drill.id));
    }
  }
  byId("results-none").hidden = shown.size > 0;
}

/** Adds older ones at the end. */
export function add(drills) {
  for (const drill of drills.filter(drill => !shown.has(drill.id))) {
    shown.set(drill.id, row(drill));
    byId("results").append(shown.get(drill.id));
  }
}

/** The oldest that is shown. */
export const oldest = () => byId("results").lastElementChild?.dataset.id;

function row(drill) {
  const lasted = (Date.parse(drill.ended_at) - Date.parse(drill.started_at)) / 1000;
  const more = make("div", { class: "more", hidden: "" });
  const toggle = make("button", { class: "plain", "aria-expanded": "false", "aria-label": `Details of ${drill.playbook}, ${drill.started_at}` }, "Details");
  toggle.addEventListener("click", async () => {
    const open = more.hidden;
    more.hidden = !open;
    toggle.setAttribute("aria-expanded", String(open));
    if (open && !more.childElementCount) more.append(await details(drill.id).catch(error => make("p", { class: "problem" }, error.message)));
  });
  return make("li", { "data-id": drill.id },
    make("div", { class: "row" },
      badge(drill.verdict || drill.state),
      make("div", { class: "grow" },
        make("strong", {}, drill.playbook),
        make("p", {}, time(drill.started_at), `, ${seconds(lasted)}`),
        drill.reason && make("p", {}, drill.reason)),
      toggle),
    more);
}

async function details(id) {
  const drill = await get(`/v1/drills/${id}`);
  if (!drill.result) return make("p", {}, "It has no result.");
  const heads = ["Verdict", "Expectation", "Observed", "Limit"].map(text => make("th", { scope: "col" }, text));
  const rows = drill.result.expectations.map(one =>
    make("tr", {},
      make("td", {}, badge(one.verdict)),
      make("td", { class: "text" }, one.text, one.reason && make("p", {}, one.reason)),
      make("td", { "data-head": "Observed" }, quantity(one.observed, one.unit)),
      make("td", { "data-head": "Limit" }, quantity(one.limit, one.unit))));
  const table = rows.length
    ? make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)))
    : make("p", {}, "Its playbook expects nothing.");
  return make("div", {}, table, make("p", {}, report(id)));
}

/** A link to the report. A link cannot bring a token along: then the report is fetched and saved. */
function report(id) {
  const path = `/v1/drills/${id}/report`;
  if (!hasToken()) return make("a", { href: path, target: "_blank", rel: "noopener" }, "Report");
  const save = async event => {
    event.preventDefault();
    const url = URL.createObjectURL(await (await send("GET", path)).blob());
    make("a", { href: url, download: `stormdrill-${id}.html` }).click();
    URL.revokeObjectURL(url);
  };
  return make("a", { href: path, onclick: save }, "Save the report");
}
