// The facts of a node: a row for each relation and direction, long rows folded.

import { requestUpTo } from "./api.js";
import { element, folded, keepFocus, nodeLink, errorBox } from "./page.js";
import { count, heldOut, incoming, outgoing } from "./words.js";

const PAGE = 400;
const SHOWN = 8;

export const requestFacts = (context, name, offset = 0) => requestUpTo(context.ask, "neighbors", { node: name, offset }, "limit", PAGE);

/** Groups facts by relation and direction, in order of first appearance. */
export function groups(facts) {
  const found = new Map();
  for (const fact of facts) {
    const key = JSON.stringify([fact.outgoing, fact.relation.name]);
    if (!found.has(key)) found.set(key, { relation: fact.relation, outgoing: fact.outgoing, facts: [] });
    found.get(key).facts.push(fact);
  }
  return [...found.values()];
}

export function drawFacts(context, answer) {
  const section = element("section", { "aria-labelledby": "facts-title" });
  const redraw = (facts) => section.replaceChildren(...content(context, answer, facts, redraw));
  redraw(answer.facts);
  return section;
}

function content(context, answer, facts, redraw) {
  const all = groups(facts);
  const held = facts.some((fact) => heldOut(fact.split));
  return [
    element("h2", { id: "facts-title" }, "What the data say"),
    element("p", { class: "muted" }, answer.total
      ? `${count(answer.total, "fact")}. Click a thing to go there.`
      : "The data say nothing about it."),
    ...half(context, all.filter((group) => group.outgoing), null),
    ...half(context, all.filter((group) => !group.outgoing), "Facts about others that name it"),
    held && element("p", { class: "note" }, "* kept from the model while it learned, to test it"),
    facts.length < answer.total && more(context, answer, facts, redraw),
  ].filter(Boolean);
}

function half(context, rows, title) {
  if (!rows.length) return [];
  const list = element("dl", { class: "facts" }, rows.map((group) => row(context, group)));
  return title ? [element("h3", {}, title), list] : [list];
}

function row(context, group) {
  const words = group.outgoing ? outgoing(group.relation) : incoming(group.relation);
  const items = group.facts.map((fact) => element("li", {}, nodeLink(context, fact.node), heldOut(fact.split) && star()));
  const list = element("ul", { class: "things" });
  return element("div", {},
    element("dt", { title: group.relation.name }, words),
    element("dd", {}, folded(list, items, SHOWN, "thing")));
}

const star = () => element("span", { class: "star" }, "*", element("span", { class: "unseen" }, " (kept from the model)"));

function more(context, answer, facts, redraw) {
  const place = element("div", { class: "more" });
  const load = async () => {
    place.setAttribute("aria-busy", "true");
    try {
      const next = await requestFacts(context, answer.node.name, facts.length);
      const section = place.parentElement;
      redraw([...facts, ...next.facts]);
      keepFocus(section);
    } catch (error) {
      place.replaceChildren(errorBox(error, load));
      place.removeAttribute("aria-busy");
    }
  };
  const left = Math.min(PAGE, answer.total - facts.length);
  place.append(element("button", { type: "button", onclick: load }, `Show ${count(left, "more", "more")}`),
    element("span", { class: "muted" }, ` ${count(facts.length, "of", "of")} ${count(answer.total, "fact")} so far`));
  return place;
}
