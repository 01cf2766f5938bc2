// How the page asks the server: one function, answers remembered, errors that carry words for a person.

const TOKEN = "rgcn-token";
const REMEMBERED = 200;
const RETRIES_WHEN_BUSY = 2;
const remembered = new Map();
let tokenAsked = null;

export class Trouble extends Error {
  constructor(message, { code = null, suggestions = [] } = {}) {
    super(message);
    this.code = code;
    this.suggestions = suggestions;
  }
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

export const stopped = (error) => error?.name === "AbortError";

/** GET of `path` under /api. What was asked before, or is under way, is not asked again; failures are. */
export function ask(path, parameters = {}, { signal } = {}) {
  const address = `/api/${path}?${new URLSearchParams(parameters)}`.replace(/\?$/, "");
  if (!remembered.has(address)) {
    const answer = answerFrom(address, signal);
    answer.catch(() => remembered.delete(address));
    remembered.set(address, answer);
    if (remembered.size > REMEMBERED) remembered.delete(remembered.keys().next().value);
  }
  return remembered.get(address);
}

async function answerFrom(address, signal) {
  const response = await fetched(address, signal);
  return response.headers.get("content-type").includes("json") ? response.json() : response.text();
}

/** As `ask`, for `most` under the name `key`, or as many as the server gives unasked. */
export async function askUpTo(askHere, what, parameters, key, most) {
  try {
    return await askHere(what, { ...parameters, [key]: most });
  } catch (error) {
    if (error.code !== "invalid") throw error;
    return askHere(what, parameters);
  }
}

async function fetched(address, signal) {
  for (let busy = 0; ; ) {
    const token = sessionStorage.getItem(TOKEN);
    const response = await once(address, token, signal);
    if (response.ok) return response;
    if (response.status === 401) {
      // Another question may have got a new token while this one was on its way.
      if (sessionStorage.getItem(TOKEN) === token) await tokenFromPerson(token !== null);
    } else if (response.status === 503 && busy < RETRIES_WHEN_BUSY) {
      busy += 1;
      await pause(Math.min(Number(response.headers.get("retry-after")) || 1, 5) * 1000, signal);
    } else {
      throw await troubleOf(response);
    }
  }
}

async function once(address, token, signal) {
  try {
    return await fetch(address, { signal, headers: token ? { authorization: `Bearer ${token}` } : {} });
  } catch (error) {
    if (stopped(error)) throw error;
    throw new Trouble("The server does not answer. Is “rgcn serve” still running, and the network there?");
  }
}

async function troubleOf(response) {
  let said = null;
  try {
    said = (await response.json()).error;
  } catch {
    // No JSON: something between us and the server answered.
  }
  return new Trouble(said?.message ?? `The server could not answer (status ${response.status}).`, said ?? {});
}

const pause = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });

/** Shows the dialog; however many questions wait for the token, a person is asked once. */
function tokenFromPerson(wasRefused) {
  tokenAsked ??= showTokenDialog(wasRefused).finally(() => (tokenAsked = null));
  return tokenAsked;
}

function showTokenDialog(wasRefused) {
  const [dialog, form, input, cancel] = ["token-dialog", "token-form", "token", "token-cancel"].map((id) => document.getElementById(id));
  document.getElementById("token-title").textContent = wasRefused ? "That token was not accepted" : "This server asks for a token";
  input.value = "";
  return new Promise((resolve, reject) => {
    let given = null;
    form.onsubmit = () => (given = input.value.trim());
    cancel.onclick = () => dialog.close();
    dialog.onclose = () => {
      if (!given) return reject(new Trouble("Without its token the server does not answer."));
      sessionStorage.setItem(TOKEN, given);
      resolve();
    };
    dialog.showModal();
  });
}
