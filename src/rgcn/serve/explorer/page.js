// Small pieces that every part of the page is put together from. Text goes in as text, never as markup.

import { Trouble, stopped } from "./api.js";
import { count } from "./words.js";

/** An element; attributes that start with "on" are listeners, those that are null or false are left out. */
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

/** Where a link to some state of the page leads. Parts that are null are left out. */
export const hash = (state) => `#${new URLSearchParams(Object.entries(state).filter(([, value]) => value))}`;

/** A name from the data keeps its writing direction to itself; a text has quotes. */
export const named = (thing) => element(thing.kind === "literal" ? "q" : "bdi",
  { dir: "auto", title: thing.name !== thing.title && thing.name }, thing.title || thing.name);

export const nodeLink = (context, node) => element("a", { class: "node-link", href: context.href(node.name) }, named(node));

/** A bar for a share between 0 and 1; the figure is always beside it as text. */
function bar(share, kind = "") {
  const inner = element("span", {});
  inner.style.setProperty("width", `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(2)}%`);
  return element("span", { class: `track ${kind}`, "aria-hidden": "true" }, inner);
}

/** A line of a list: what it is about, a bar, the figure. */
export const barLine = (name, share, value, rest = [], kind = "") => element("li", {},
  element("span", { class: "name" }, name), bar(share, kind), element("span", { class: "value" }, value), rest);

/** Says something to those who listen instead of look. */
export function announce(words) {
  const place = byId("said");
  // A screen reader is silent about text that is the same as before.
  place.textContent = place.textContent === words ? `${words}\u00a0` : words;
}

/** What went wrong, where it went wrong, and a way out. */
export function troubleBox(error, again, context = null) {
  const known = error instanceof Trouble;
  if (!known) console.error(error);
  const words = known ? error.message : `Something in this page went wrong: ${error.message}`;
  const offered = (known && context && error.suggestions) || [];
  return element("div", { class: "trouble", role: "alert" },
    element("p", {}, words),
    offered.length > 0 && element("p", {}, "Perhaps: ", offered.slice(0, 5).flatMap((name, i) => [
      i ? ", " : "", element("a", { href: context.href(name) }, element("bdi", {}, name))])),
    element("button", { type: "button", onclick: again }, "Try again"));
}

const turns = new WeakMap();

/** Asks, and puts what `draw` makes of the answer into `place`; a later call for the place wins. */
export async function fill(place, question, draw, context = null) {
  const turn = Symbol("turn");
  turns.set(place, turn);
  place.setAttribute("aria-busy", "true");
  let content;
  try {
    content = draw(await question());
  } catch (error) {
    if (stopped(error)) return;
    content = troubleBox(error, () => fill(place, question, draw, context), context);
  }
  if (turns.get(place) !== turn) return;
  const hadFocus = place.contains(document.activeElement);
  place.replaceChildren(...[content].flat().filter(Boolean));
  place.removeAttribute("aria-busy");
  if (hadFocus) keepFocus(place);
}

/** What had the focus is gone: its place takes it, and the next Tab goes on from there. */
export function keepFocus(place) {
  place.setAttribute("tabindex", "-1");
  place.focus({ preventScroll: true });
}

/** The first few of a list, and a button for the rest. */
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
