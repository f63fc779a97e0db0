// Starting a drill: one of the folder's playbooks, or a pasted one with its problems shown.

import { get, send } from "./api.js";
import { byId, make } from "./view.js";

/** Shows the folder, and makes the form work; `onStart` is called when a drill runs. */
export async function prepare(onStart) {
  byId("yaml-form").onsubmit = event => {
    event.preventDefault();
    check(name => ask(name || "this playbook", { type: "application/yaml", body: byId("yaml").value }, onStart));
  };
  byId("check").onclick = () => check(name => byId("yaml-result").replaceChildren(make("p", { class: "fine" }, `${name} can be run.`)));
  const { playbooks } = await get("/v1/playbooks");
  byId("playbooks").replaceChildren(...playbooks.map(playbook => item(playbook, onStart)));
  byId("playbooks-none").hidden = playbooks.length > 0;
  if (!playbooks.length) byId("paste").open = true;
}

function item(playbook, onStart) {
  const request = { type: "application/json", body: JSON.stringify({ name: playbook.name }) };
  const button = make("button", { disabled: playbook.valid ? false : "", onclick: () => ask(playbook.name, request, onStart) }, "Start…");
  button.setAttribute("aria-label", `Start ${playbook.name}`);
  const text = playbook.valid ? playbook.description || "" : "It has problems; `stormdrill validate` says which.";
  return make("li", {}, button, make("strong", {}, playbook.name), make("p", {}, text));
}

/** Asks the daemon what is wrong with the text, shows it, and goes on if nothing is. */
async function check(onGood) {
  const result = byId("yaml-result");
  try {
    const response = await send("POST", "/v1/playbooks/validate", { type: "application/yaml", body: byId("yaml").value });
    const answer = await response.json();
    if (answer.valid) {
      result.replaceChildren();
      onGood(answer.playbook);
    } else {
      result.replaceChildren(problems(answer.problems));
    }
  } catch (error) {
    result.replaceChildren(make("p", { class: "problem" }, error.message));
  }
}

function problems(list) {
  const one = problem =>
    make("li", {},
      make("button", { type: "button", onclick: () => goTo(problem.line, problem.column) }, `Line ${problem.line}`),
      make("div", {}, problem.message),
      problem.help && make("div", { class: "help" }, problem.help));
  return make("ul", { class: "problems" }, ...list.map(one));
}

/** Puts the cursor where a problem is. */
function goTo(line, column) {
  const field = byId("yaml");
  const lines = field.value.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  field.focus();
  field.setSelectionRange(before + column - 1, before + (lines[line - 1] || "").length);
  field.scrollTop = (line - 4) * (field.scrollHeight / lines.length);
}

/** A drill disturbs real traffic: it is asked for twice. The key makes a request that is repeated start one drill. */
function ask(name, request, onStart) {
  const dialog = byId("confirm");
  const key = crypto.getRandomValues(new Uint32Array(4)).join("-");
  byId("confirm-name").textContent = name;
  byId("confirm-problem").textContent = "";
  byId("confirm-yes").onclick = async event => {
    event.preventDefault();
    byId("confirm-yes").disabled = true;
    try {
      await send("POST", "/v1/drills", { ...request, headers: { "Idempotency-Key": key } });
      dialog.close();
      onStart();
    } catch (error) {
      byId("confirm-problem").textContent = error.drill ? `${error.message}.` : [error.message, ...error.problems.map(p => p.message)].join(": ");
    } finally {
      byId("confirm-yes").disabled = false;
    }
  };
  dialog.showModal();
}
