// Predictions: the class of a node, and its missing links.

import { requestUpTo } from "./api.js";
import { groups } from "./facts.js";
import { announce, barLine, element, fill, folded, hash, named, nodeLink } from "./page.js";
import { count, heldOut, plain, question, roughly, formatConfidence, relationWords, splitWords } from "./words.js";
import { why, whyNot } from "./why.js";

const CLASSES_SHOWN = 5;
const STEPS = [10, 25, 50, 100]; // numbers of answers, one after another with "More answers"

export const requestClass = (context, name) => context.ask("class", { node: name });

/** The predicted class, and the other classes. */
export function drawClass(context, answer) {
  const length = lengths(answer.classes);
  const items = answer.classes.map((row) => classRow(row, answer.label, length(row)));
  const list = element("ol", { class: "bars" });
  return [
    element("p", { class: "lead" }, "The computer’s guess: ", element("strong", {}, named(answer.class)),
      answer.probability === null ? "." : `, ${roughly(answer.probability)} sure.`),
    verdict(answer),
    ...folded(list, items, CLASSES_SHOWN, "group"),
    howToRead(context),
    ...why(context, { node: answer.node.name }, "Why this guess?"),
    whyNot(context),
  ];
}

function classRow(row, label, length) {
  const labeled = label && label.name === row.class.name;
  return barLine([named(row.class), labeled && element("span", { class: "mark" }, "✓ the data say this")], length, formatConfidence(row));
}

/** Lengths of bars: probabilities, or scores from zero to the best. */
function lengths(answers) {
  const scores = answers.map(({ score }) => score);
  const [low, high] = [Math.min(0, ...scores), Math.max(...scores)];
  return ({ probability, score }) => probability ?? (high > low ? (score - low) / (high - low) : 1);
}

function verdict(answer) {
  if (!answer.label) {
    return element("p", {}, "The data do not say which group it belongs to. The model learned from things whose group is known; ",
      "for things of quite another kind its guess means little.");
  }
  const right = answer.label.name === answer.class.name;
  const fair = heldOut(answer.label_split);
  return element("p", {}, "The data say: ", element("strong", {}, named(answer.label)), ` (${splitWords(answer.label_split)}). `,
    fair && element("span", { class: right ? "right" : "wrong" }, right ? "✓ guessed right" : "✗ guessed wrong"));
}

function howToRead({ about: { calibration } }) {
  const words = plain(`${calibration.meaning} ${calibration.words}`);
  if (calibration.fitted) return element("details", { class: "small" }, element("summary", {}, "How to read the percentages"), element("p", {}, words));
  return element("p", { class: "note" }, element("strong", {}, "Not calibrated: the order counts, not the number. "), words);
}

/** Draws missing links into `place`: a choice of questions, and the answers. */
export function drawLinks(context, place, node, facts, state) {
  const kinds = kindsFor(context.about.relations, facts);
  const asked = firstQuestion(context, kinds, state);
  const answers = element("div", { class: "answers" });
  const select = element("select", { id: "kind" }, options(kinds, asked.relation));
  const sides = element("fieldset", { class: "sides" });
  const hide = element("input", { type: "checkbox", id: "hide-known" });

  const load = async () => {
    await answerList(context, node, asked, hide.checked, answers);
    return answers.querySelectorAll(".links > li").length;
  };
  const change = (part) => {
    Object.assign(asked, part);
    // Replaced, not pushed, so that "back" leads to the previous node, not to the previous question.
    history.replaceState(history.state, "", hash({
      model: context.about.name, node: node.name, relation: asked.relation, ask: asked.askedFor }));
    loadAloud();
  };
  const loadAloud = async () => announce(`${count(await load(), "answer")}.`);
  const showSides = () => sides.replaceChildren(element("legend", {}, "Question"),
    ...["object", "subject"].map((side) => sideChoice(kindOf(asked.relation), node, side, side === asked.askedFor, () =>
      change({ askedFor: side }))));
  const kindOf = (name) => kinds.find((kind) => kind.name === name);

  select.addEventListener("change", () => {
    change({ relation: select.value, askedFor: usualSide(kindOf(select.value)) });
    showSides();
  });
  hide.addEventListener("change", loadAloud);
  showSides();
  place.replaceChildren(
    element("p", { class: "lead" }, "Ask what is missing. The computer puts the likeliest answers first."),
    element("div", { class: "ask" },
      element("label", { for: "kind" }, "Kind of fact"), select, sides,
      element("label", { class: "check" }, hide, " Hide what is known already")),
    answers);
  return load();
}

/** All relations with their numbers of facts on each side, those of the node first. */
function kindsFor(relations, facts) {
  const taken = new Map();
  for (const group of groups(facts)) {
    const kind = taken.get(group.relation.name) ?? { out: 0, in: 0 };
    kind[group.outgoing ? "out" : "in"] += group.facts.length;
    taken.set(group.relation.name, kind);
  }
  const kinds = relations.map((relation) => ({ out: 0, in: 0, ...relation, ...taken.get(relation.name) }));
  return kinds.sort((a, b) => b.out + b.in - (a.out + a.in));
}

const usualSide = (kind) => (kind.in > kind.out ? "subject" : "object");

function firstQuestion(context, kinds, state) {
  const byName = (name) => kinds.find((kind) => kind.name === name);
  const example = byName(context.about.examples?.relation);
  const kind = byName(state.relation) ?? (example && example.out + example.in ? example : kinds[0]);
  return { relation: kind.name, askedFor: ["object", "subject"].includes(state.ask) ? state.ask : usualSide(kind) };
}

function options(kinds, chosen) {
  return kinds.map((kind) => {
    const known = kind.out + kind.in;
    return element("option", { value: kind.name, selected: kind.name === chosen }, relationWords(kind), known > 0 && ` (${count(known, "known fact")})`);
  });
}

function sideChoice(kind, node, side, checked, onchange) {
  const input = element("input", { type: "radio", name: "side", value: side, onchange });
  input.checked = checked;
  return element("label", {}, input, element("bdi", {}, question(kind, node.title || node.name, side)));
}

async function answerList(context, node, asked, hideKnown, place) {
  const given = asked.askedFor === "object" ? "subject" : "object";
  const question = { [given]: node.name, relation: asked.relation, known: hideKnown ? "drop" : "mark" };
  const askFor = (k) => requestUpTo(context.ask, "links", question, "k", k);
  await fill(place, () => askFor(STEPS[0]), (answer) => {
    const note = element("p", { class: "empty" }, answer.note ?? "No answer that is not known already.");
    if (!answer.links.length) return note;
    return [answer.note && note, ...growing(context, asked, answer, askFor), howToRead(context), whyNot(context)];
  }, context);
}

/** The answers, and a button for more. */
function growing(context, asked, answer, askFor) {
  const length = lengths(answer.links);
  const row = (link) => answerRow(context, answer.query, asked, link, length(link));
  const list = element("ol", { class: "bars links" }, answer.links.map(row));
  const place = element("div", { class: "more" });
  const grow = (step) => fill(place, () => askFor(STEPS[step]), (longer) => {
    const there = list.children.length;
    list.append(...longer.links.slice(there).map(row));
    list.children[there]?.querySelector("a")?.focus();
    return button(step + 1, longer);
  });
  const button = (step, { links }) => step < STEPS.length && links.length === STEPS[step - 1]
    && element("button", { type: "button", onclick: () => grow(step) }, "More answers");
  place.append(button(1, answer) || "");
  return [list, place];
}

function answerRow(context, query, asked, link, length) {
  const triple = asked.askedFor === "object"
    ? { subject: query.subject.name, relation: query.relation.name, object: link.node.name }
    : { subject: link.node.name, relation: query.relation.name, object: query.object.name };
  const name = [nodeLink(context, link.node),
    heldOut(link.split) && element("span", { class: "mark kept" }, "✓ true, and kept from it")];
  return barLine(name, link.known ? 0 : length, link.known ? "✓ in the data" : formatConfidence(link),
    why(context, triple, "Why?", `Why ${link.node.title || link.node.name}?`));
}
