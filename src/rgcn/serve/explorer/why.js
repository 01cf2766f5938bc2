// Explanations: the most important facts, as the server's drawing and as text.

import { PageError } from "./api.js";
import { announce, barLine, element, fill, folded, nodeLink } from "./page.js";
import { count, methodWords, percent, plain, roughly, relationWords } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "a", "path", "line", "polyline", "polygon", "rect", "circle", "ellipse", "text", "tspan", "title", "desc", "defs", "marker"]);
const REASONS_SHOWN = 8;

/** A button and the panel it opens; nothing if the model has no explanations. */
export function why(context, about, words, label = null) {
  if (!context.about.explain_methods.length) return [];
  const panel = element("div", { class: "panel", hidden: true });
  const button = element("button", { type: "button", class: "why-button", "aria-expanded": "false", "aria-label": label, onclick: () => {
    const opening = panel.hidden;
    panel.hidden = !opening;
    button.setAttribute("aria-expanded", String(opening));
    if (opening && !panel.childElementCount) explain(context, about, panel, context.about.explain_methods[0]);
  } }, words);
  return [button, panel];
}

/** The reason why there is no button; null if there is one. */
export const whyNot = (context) => (context.about.explain_methods.length ? null : element("p", { class: "note" },
  "This kind of model does not use the facts around a thing when it answers, so no facts can explain its guess."));

async function explain(context, about, panel, method) {
  announce("Working out why …");
  await fill(panel, () => context.ask("explain", { ...about, method }), (answer) => {
    announce("The explanation is there.");
    return draw(context, answer, (other) => explain(context, about, panel, other));
  }, context);
}

function draw(context, answer, askOtherwise) {
  const weighed = [...answer.edges, ...answer.against].sort((a, b) => b.share - a.share);
  const reasons = weighed.map((edge) => reason(context, edge, weighed[0].share));
  const paths = answer.paths.length > 0 && element("details", { class: "small", open: true },
    element("summary", {}, answer.walked ? "The same in words" : "Ways that lead there"),
    element("ul", { class: "paths" }, answer.paths.map((path) => walk(context, path))));
  const heading = answer.walked && paths ? "The ways that led to it, best first" : "The facts that weighed most";
  return [
    answer.hidden && element("p", { class: "note" }, "This fact itself was hidden while asking."),
    element("h3", {}, weighed.length ? heading : "No fact around it mattered"),
    weighed.length > 0 && element("div", { class: "drawing", tabindex: "0", role: "group", "aria-label": "Drawing" }, drawing(answer.svg, context)),
    answer.walked && paths,
    answer.walked && paths && element("h3", {}, "The facts that weighed most"),
    ...folded(element("ol", { class: "bars reasons" }), reasons, REASONS_SHOWN, "fact"),
    weighed.length > 0 && element("p", { class: "note" }, `Shares of all that counted, over ${count(answer.considered, "fact")} within reach.`),
    answer.own_share >= 0.01 && element("p", {}, `${capital(roughly(answer.own_share))} of the answer comes from what the model remembers of `,
      answer.question.kind === "link" ? "the two things themselves" : "the thing itself", ", not from facts."),
    !answer.walked && paths,
    element("p", { class: "fidelity" }, element("strong", {}, "Can you believe it? "), plain(answer.fidelity.words)),
    howWorkedOut(context, answer, askOtherwise),
  ];
}

function reason(context, edge, most) {
  const against = edge.importance < 0;
  const name = [triple(context, edge), edge.itself && element("span", { class: "mark" }, "this very fact")];
  return barLine(name, edge.share / most, `${percent(edge.share)} ${against ? "against" : "for"}`, [], against ? "against" : "");
}

/** Subject, relation, object. */
const triple = (context, { subject, relation, object }) => element("span", { class: "triple" },
  nodeLink(context, subject), " ", element("span", { class: "relation", title: relation.name }, relationWords(relation)), " ", nodeLink(context, object));

/** A path, node by node; the arrows show the directions of the facts. */
const walk = (context, { steps }) => element("li", {},
  nodeLink(context, steps[0].forward ? steps[0].subject : steps[0].object),
  steps.flatMap(({ subject, relation, object, forward }) => [
    element("span", { class: "muted", title: relation.name }, forward ? ` — ${relationWords(relation)} → ` : ` ← ${relationWords(relation)} — `),
    nodeLink(context, forward ? object : subject)]));

function howWorkedOut(context, answer, askOtherwise) {
  const { edges, draws, probability, strength } = answer.fidelity;
  const { name, full, without } = probability ?? strength;
  const left = (change) => (probability ? percent(full - change) : (full - change).toPrecision(3));
  return element("details", { class: "small" }, element("summary", {}, "How this was worked out"),
    element("p", {}, `${capital(methodWords(answer.method))} (${answer.method}). `,
      `${capital(name)}: ${left(0)}; without the ${count(edges, "named fact")} ${left(without.named)}`,
      draws ? `; without as many at random ${left(without.random)} (mean of ${count(draws, "draw")}).` : ".",
      " ", answer.left_out.join(" ")),
    context.about.explain_methods.filter((method) => method !== answer.method).map((method) =>
      element("button", { type: "button", onclick: () => askOtherwise(method) }, `Ask again ${methodWords(method)}`)));
}

const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** The server's drawing, reduced to allowed elements, with links for its nodes. */
export function drawing(markup, context) {
  const spaced = /^\s*<svg[^>]*\sxmlns=/.test(markup) ? markup : markup.replace("<svg", `<svg xmlns="${SVG}"`);
  const parsed = new DOMParser().parseFromString(spaced, "image/svg+xml").documentElement;
  if (parsed.localName !== "svg" || parsed.querySelector("parsererror")) throw new PageError("The drawing from the server is broken.");
  for (const part of [parsed, ...parsed.querySelectorAll("*")]) clean(part);
  const picture = document.importNode(parsed, true);
  for (const thing of picture.querySelectorAll("[data-node]")) linked(thing, context.href(thing.getAttribute("data-node")));
  return picture;
}

// The server escapes names in drawings; this is a second protection.
function clean(part) {
  if (part.namespaceURI !== SVG || !DRAWN.has(part.localName)) return part.remove();
  for (const { name } of [...part.attributes]) {
    if (/^on|style$|href$|^xml/i.test(name) && name !== "xmlns") part.removeAttribute(name);
  }
}

/** Wraps a drawn node in a link; on other pages it is a button. */
function linked(thing, address) {
  const link = document.createElementNS(SVG, "a");
  link.setAttribute("href", address);
  link.setAttribute("aria-label", thing.getAttribute("aria-label") ?? thing.textContent);
  for (const name of ["tabindex", "role", "aria-label"]) thing.removeAttribute(name);
  thing.replaceWith(link);
  link.append(thing);
}
