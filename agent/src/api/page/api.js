// Asks the daemon. The token, if there has to be one, stays in this tab's session storage and goes nowhere but into the header.

const KEY = "stormdrill-token";

/** A problem that the daemon answered, or a text about none having come. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the daemon answered ${status}`);
    this.status = status;
    this.problems = problem.problems || [];
    this.drill = problem.drill;
  }
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;
export const setToken = token => sessionStorage.setItem(KEY, token);
export const forgetToken = () => sessionStorage.removeItem(KEY);

/** Sends a request and gives the response; every status from 400 on is thrown as Refused. */
export async function send(method, path, { type, body, headers = {}, signal } = {}) {
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (type) headers["Content-Type"] = type;
  const response = await fetch(path, { method, headers, body, signal, cache: "no-store", redirect: "error" });
  if (response.status >= 400) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response;
}

export const get = async path => (await send("GET", path)).json();

/** Follows a drill's events until the last one; goes on behind the last that came when the connection breaks. */
export async function follow(id, onEvent, signal) {
  let last = 0;
  for (let wait = 500; ; wait = Math.min(wait * 2, 10_000)) {
    try {
      const headers = last ? { "Last-Event-ID": String(last) } : {};
      const response = await send("GET", `/v1/drills/${id}/events`, { headers, signal });
      if (response.status === 204) return;
      for await (const event of events(response.body)) {
        last = event.id || last;
        wait = 500;
        onEvent(event.kind, JSON.parse(event.data));
        if (event.kind === "end") return;
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Refused && [401, 404].includes(error.status))) return;
    }
    await new Promise(done => setTimeout(done, wait));
  }
}

/** The events of a text/event-stream; EventSource cannot send a token. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const event = { id: 0, kind: "", data: "" };
      for (const line of part.split("\n")) {
        if (line.startsWith("id: ")) event.id = Number(line.slice(4));
        if (line.startsWith("event: ")) event.kind = line.slice(7);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      if (event.data) yield event;
    }
  }
}
