// The page: asks every two seconds what there is, and shows it. What runs is followed by its events.

import { Refused, forgetToken, get, hasToken, setToken } from "./api.js";
import * as results from "./results.js";
import * as running from "./running.js";
import * as start from "./start.js";
import { byId, edgeCells, make, spark } from "./view.js";

const EVERY = 2_000;
const HIDDEN = 15_000;
/** Points of a small line; at a poll every two seconds, four minutes. */
const POINTS = 120;

const history = new Map();
let timer;
let isPrepared = false;

function say(text) {
  byId("news").textContent = text;
}

function health(word, isGood) {
  byId("health").textContent = word;
  byId("health").className = `health ${isGood ? "live" : "lost"}`;
}

function edges(list) {
  const row = edge => {
    const seen = history.get(edge.name) || { index: null, values: [] };
    history.set(edge.name, seen);
    if (edge.window && edge.index !== seen.index) {
      seen.index = edge.index;
      seen.values.push(edge.window.qps);
      if (seen.values.length > POINTS) seen.values.shift();
    }
    return make("tr", {}, ...edgeCells(edge), make("td", {}, spark(seen.values)));
  };
  byId("edges").tBodies[0].replaceChildren(...list.map(row));
  byId("edges").hidden = !list.length;
  byId("edges-none").hidden = list.length > 0;
}

async function refresh() {
  clearTimeout(timer);
  try {
    const [drills, observed] = await Promise.all([get("/v1/drills?limit=50"), get("/v1/edges")]);
    byId("sign-in").hidden = true;
    byId("content").hidden = false;
    byId("banner").hidden = true;
    // A link cannot bring the token along.
    byId("documents").hidden = hasToken();
    if (!isPrepared) {
      isPrepared = true;
      await start.prepare(refresh);
    }
    running.show(drills.drills.filter(drill => drill.state === "running"), refresh, say);
    const isFirst = !results.oldest();
    results.show(drills.drills.filter(drill => drill.state !== "running"));
    if (isFirst) byId("more").hidden = drills.next === null;
    edges(observed.edges.map(edge => ({ ...edge, index: observed.window_index })));
    health("live", true);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      signIn();
      return;
    }
    health("no answer", false);
    byId("banner").textContent = error instanceof Refused ? error.message : "The daemon does not answer. Drills end by themselves within three seconds if it died.";
    byId("banner").hidden = false;
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, document.hidden ? HIDDEN : EVERY);
}

function signIn() {
  health("needs a token", false);
  byId("token-problem").textContent = hasToken() ? "That is not the token." : "";
  forgetToken();
  byId("content").hidden = true;
  byId("sign-in").hidden = false;
  byId("token").focus();
}

byId("token-form").onsubmit = event => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  refresh();
};

byId("more").onclick = async () => {
  // The oldest one may be kept no longer: then there is nothing behind it.
  const page = await get(`/v1/drills?limit=50&after=${results.oldest()}`).catch(() => ({ drills: [], next: null }));
  results.add(page.drills);
  byId("more").hidden = page.next === null;
};

document.addEventListener("visibilitychange", () => document.hidden || refresh());
byId("where").textContent = location.host;
refresh();
