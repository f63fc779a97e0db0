// The drills that are running: a card each, fed by the drill's events.

import { follow, send } from "./api.js";
import { plot } from "./plot.js";
import { badge, byId, edgeCells, make, percent, rate, seconds } from "./view.js";

const PHASES = ["baseline", "fault", "recovery"];
/** Windows that a chart holds. */
const MOST = 600;

const cards = new Map();

/** Shows these drills and no others; `onEnd` is told when one has ended, `say` what happens. */
export function show(drills, onEnd, say) {
  for (const drill of drills) {
    if (!cards.has(drill.id)) cards.set(drill.id, new Card(drill, onEnd, say));
    cards.get(drill.id).update(drill);
  }
  for (const [id, card] of cards) {
    if (!drills.some(drill => drill.id === id)) card.remove();
  }
  byId("running-none").hidden = cards.size > 0;
}

class Card {
  constructor(drill, onEnd, say) {
    this.id = drill.id;
    this.windows = [];
    this.edges = [];
    this.stop = new AbortController();
    this.left = make("span", { class: "quiet" });
    this.button = make("button", { class: "danger", onclick: () => this.abort() }, "Abort");
    this.button.setAttribute("aria-label", `Abort ${drill.playbook}`);
    this.steps = PHASES.map(name => make("li", { class: name }, name));
    this.plots = make("div", { class: "plots" });
    this.rows = make("tbody");
    this.faults = make("p", { class: "small" });
    this.notes = make("ul", { class: "notes" });
    this.problem = make("p", { class: "problem", role: "alert" });
    const heads = ["Edge", "Role", "QPS", "Retries", "Failures", "p50", "p99"];
    const head = make("tr", {}, ...heads.map((text, index) => make("th", { scope: "col", class: index > 1 && "number" }, text)));
    this.node = make("article", { class: "card", "aria-label": `Drill ${drill.playbook}`, "data-id": drill.id },
      make("div", { class: "row" },
        make("div", { class: "grow" }, make("h3", {}, drill.playbook), make("span", { class: "id quiet" }, drill.id)),
        badge("running"), this.left, this.button),
      make("ol", { class: "phases" }, ...this.steps),
      this.faults, this.plots,
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Edges of ${drill.playbook}` },
        make("table", {}, make("thead", {}, head), this.rows)),
      this.notes, this.problem);
    byId("running").append(this.node);
    this.tick();
    this.clock = setInterval(() => this.tick(), 1000);
    const onEvent = (kind, data) => {
      if (kind === "phase") {
        this.phase(data.phase, data.seconds);
        if (PHASES.includes(data.phase)) say(`${drill.playbook}: ${data.phase}`);
      }
      if (kind === "window") this.window(data);
      if (kind === "note") this.notes.append(make("li", {}, data.text));
      if (kind === "end") say(`${drill.playbook}: ${data.verdict || data.state}`);
    };
    follow(drill.id, onEvent, this.stop.signal).then(() => this.stop.signal.aborted || onEnd());
  }

  update(drill) {
    // The list knows what the events do not: counts of the faults, and the roles of the edges.
    if (drill.phase && drill.phase !== this.name) this.phase(drill.phase, drill.phase_seconds_left);
    const isFirst = this.edges.length === 0;
    this.edges = drill.edges.map((edge, index) => ({ ...edge, color: index % 6 }));
    if (isFirst && this.edges.length) this.redraw();
    const counts = drill.faults.map(fault => `${fault.kind}: ${fault.hit} of ${fault.selected} hit`);
    this.faults.textContent = counts.join(" · ");
    this.table();
  }

  phase(name, left) {
    this.name = name;
    this.until = left == null ? null : Date.now() + left * 1000;
    const now = PHASES.indexOf(name);
    if (now >= 0) {
      this.steps.forEach((step, index) => {
        step.classList.toggle("done", index < now);
        if (index === now) step.setAttribute("aria-current", "step");
        else step.removeAttribute("aria-current");
      });
    }
    this.tick();
  }

  tick() {
    this.left.textContent = this.until ? `${this.name}, ${seconds((this.until - Date.now()) / 1000)} left` : this.name || "starting";
  }

  window(window) {
    this.windows.push(window);
    if (this.windows.length > MOST) this.windows.shift();
    for (const edge of this.edges) edge.window = window.edges.find(one => one.name === edge.name);
    this.table();
    this.redraw();
  }

  table() {
    this.rows.replaceChildren(...this.edges.map(edge => make("tr", {}, ...edgeCells(edge))));
  }

  redraw() {
    if (this.frame || !this.windows.length || !this.edges.length) return;
    // A stream that catches up brings hundreds of windows at once: they are drawn once.
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      const shown = this.windows.filter(window => window.phase !== "transition");
      const downstream = this.edges.filter(edge => edge.role === "downstream");
      const charts = [plot("QPS", shown, this.edges, edge => edge?.qps, rate)];
      if (downstream.length) charts.push(plot("Retry ratio", shown, downstream, edge => edge?.retry_ratio, percent));
      this.plots.replaceChildren(...charts);
    });
  }

  async abort() {
    this.button.disabled = true;
    this.button.textContent = "Removing faults…";
    try {
      await send("DELETE", `/v1/drills/${this.id}`);
    } catch (error) {
      this.problem.textContent = error.message;
      this.button.disabled = false;
      this.button.textContent = "Abort";
    }
  }

  remove() {
    this.stop.abort();
    clearInterval(this.clock);
    const hadFocus = this.node.contains(document.activeElement);
    this.node.remove();
    cards.delete(this.id);
    if (hadFocus) byId("main").focus();
  }
}
