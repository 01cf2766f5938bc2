// Requests to the server: one function with a cache, and errors whose messages are for people.

const TOKEN = "rgcn-token";
const MAX_CACHED = 200;
const RETRIES_WHEN_BUSY = 2;
const cache = new Map();
let tokenDialog = null;

export class PageError extends Error {
  constructor(message, { code = null, suggestions = [] } = {}) {
    super(message);
    this.code = code;
    this.suggestions = suggestions;
  }
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

export const isAborted = (error) => error?.name === "AbortError";

/** GET `path` under /api. Responses are cached, also those under way; failed requests are repeated. */
export function ask(path, parameters = {}, { signal } = {}) {
  const address = `/api/${path}?${new URLSearchParams(parameters)}`.replace(/\?$/, "");
  if (!cache.has(address)) {
    const answer = answerFrom(address, signal);
    answer.catch(() => cache.delete(address));
    cache.set(address, answer);
    if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
  }
  return cache.get(address);
}

async function answerFrom(address, signal) {
  const response = await fetched(address, signal);
  return response.headers.get("content-type").includes("json") ? response.json() : response.text();
}

/** Like `ask`, with `most` as the parameter `key`; with the server's default if it allows less. */
export async function requestUpTo(askHere, what, parameters, key, most) {
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
      // Another request may have set a new token in the meantime.
      if (sessionStorage.getItem(TOKEN) === token) await requestToken(token !== null);
    } else if (response.status === 503 && busy < RETRIES_WHEN_BUSY) {
      busy += 1;
      await pause(Math.min(Number(response.headers.get("retry-after")) || 1, 5) * 1000, signal);
    } else {
      throw await errorOf(response);
    }
  }
}

async function once(address, token, signal) {
  try {
    return await fetch(address, { signal, headers: token ? { authorization: `Bearer ${token}` } : {} });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new PageError("The server does not answer. Check that “rgcn serve” is still running and that the network works.");
  }
}

async function errorOf(response) {
  let details = null;
  try {
    details = (await response.json()).error;
  } catch {
    // Not JSON: a proxy answered in place of the server.
  }
  return new PageError(details?.message ?? `The server could not answer (status ${response.status}).`, details ?? {});
}

const pause = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });

/** Shows the token dialog, once for all requests that wait for the token. */
function requestToken(wasRefused) {
  tokenDialog ??= showTokenDialog(wasRefused).finally(() => (tokenDialog = null));
  return tokenDialog;
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
      if (!given) return reject(new PageError("The server does not answer without its token."));
      sessionStorage.setItem(TOKEN, given);
      resolve();
    };
    dialog.showModal();
  });
}
