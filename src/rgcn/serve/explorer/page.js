// Building blocks of the page. Text is inserted as text, never as markup.

import { PageError, isAborted } from "./api.js";
import { count } from "./words.js";

/** Makes an element; attributes that start with "on" are listeners, those that are null or false are omitted. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** The URL of a state of the page. Parts that are null are omitted. */
export const hash = (state) => `#${new URLSearchParams(Object.entries(state).filter(([, value]) => value))}`;

/** A title with its own writing direction; literals have quotes. */
export const named = (thing) => element(thing.kind === "literal" ? "q" : "bdi",
  { dir: "auto", title: thing.name !== thing.title && thing.name }, thing.title || thing.name);

export const nodeLink = (context, node) => element("a", { class: "node-link", href: context.href(node.name) }, named(node));

/** A bar for a share between 0 and 1; the number is always beside it as text. */
function bar(share, kind = "") {
  const inner = element("span", {});
  inner.style.setProperty("width", `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(2)}%`);
  return element("span", { class: `track ${kind}`, "aria-hidden": "true" }, inner);
}

/** A line of a list: name, bar and number. */
export const barLine = (name, share, value, rest = [], kind = "") => element("li", {},
  element("span", { class: "name" }, name), bar(share, kind), element("span", { class: "value" }, value), rest);

/** Announces a text to screen readers. */
export function announce(words) {
  const place = byId("announcement");
  // A screen reader does not repeat unchanged text.
  place.textContent = place.textContent === words ? `${words}\u00a0` : words;
}

/** An error message with suggestions and a button to try again. */
export function errorBox(error, again, context = null) {
  const known = error instanceof PageError;
  if (!known) console.error(error);
  const words = known ? error.message : `An error in this page: ${error.message}`;
  const offered = (known && context && error.suggestions) || [];
  return element("div", { class: "trouble", role: "alert" },
    element("p", {}, words),
    offered.length > 0 && element("p", {}, "Perhaps: ", offered.slice(0, 5).flatMap((name, i) => [
      i ? ", " : "", element("a", { href: context.href(name) }, element("bdi", {}, name))])),
    element("button", { type: "button", onclick: again }, "Try again"));
}

const turns = new WeakMap();

/** Sends a request and draws the response into `place`; a later call for the same place wins. */
export async function fill(place, question, draw, context = null) {
  const turn = Symbol("turn");
  turns.set(place, turn);
  place.setAttribute("aria-busy", "true");
  let content;
  try {
    content = draw(await question());
  } catch (error) {
    if (isAborted(error)) return;
    content = errorBox(error, () => fill(place, question, draw, context), context);
  }
  if (turns.get(place) !== turn) return;
  const hadFocus = place.contains(document.activeElement);
  place.replaceChildren(...[content].flat().filter(Boolean));
  place.removeAttribute("aria-busy");
  if (hadFocus) keepFocus(place);
}

/** Moves the focus of a removed element to its place, so that Tab continues from there. */
export function keepFocus(place) {
  place.setAttribute("tabindex", "-1");
  place.focus({ preventScroll: true });
}

/** The first items of a list, and a button for the rest. */
export function folded(list, items, shown, what) {
  list.append(...items.slice(0, shown));
  if (items.length <= shown + 2) {
    list.append(...items.slice(shown));
    return [list];
  }
  const button = element("button", { type: "button", class: "quiet", onclick: () => {
    const rest = items.slice(shown);
    list.append(...rest);
    button.remove();
    rest[0].querySelector("a, button")?.focus();
  } }, `Show all ${count(items.length, what)}`);
  return [list, button];
}
