// What the model thinks: the group of a thing with probabilities, or the facts that are missing about it.

import { askUpTo } from "./api.js";
import { groups } from "./facts.js";
import { announce, bar, element, fill, folded, hash, named, nodeLink } from "./page.js";
import { count, heldOut, percent, question, roughly, spoken, toldOrNot } from "./words.js";
import { why, whyNot } from "./why.js";

const CLASSES_SHOWN = 5;
const STEPS = [10, 25, 50, 100]; // answers asked for, each time "more" is pressed

export const askClass = (context, name) => context.ask("class", { node: name });

/** The predicted group and its rivals. */
export function drawClass(context, answer) {
  const items = answer.probabilities.map((row) => classRow(row, answer.label));
  const list = element("ol", { class: "bars" });
  return [
    element("p", { class: "lead" }, "The computer’s guess: ", element("strong", {}, named(answer.class)), `, ${roughly(answer.probability)} sure.`),
    verdict(answer),
    ...folded(list, items, CLASSES_SHOWN, "group"),
    sureness(context, answer.calibrated),
    ...why(context, { node: answer.node.name }, "Why this guess?"),
    whyNot(context),
  ];
}

function classRow(row, label) {
  const said = label && label.name === row.class.name;
  return element("li", {},
    element("span", { class: "name" }, named(row.class), said && element("span", { class: "mark" }, "✓ the data say this")),
    bar(row.probability),
    element("span", { class: "value" }, percent(row.probability)));
}

function verdict(answer) {
  if (!answer.label) {
    return element("p", {}, "The data do not say which group it belongs to. The model learned from things whose group is known; ",
      "for things of quite another kind its guess means little.");
  }
  const right = answer.label.name === answer.class.name;
  const fair = heldOut(answer.label_split);
  return element("p", {}, "The data say: ", element("strong", {}, named(answer.label)), ` (${toldOrNot(answer.label_split)}). `,
    fair && element("span", { class: right ? "right" : "wrong" }, right ? "✓ guessed right" : "✗ guessed wrong"));
}

function sureness(context, calibrated) {
  const words = calibrated
    ? "What “80 % sure” means: of a hundred such guesses about eighty are right. This was measured on facts set aside."
    : "The percentages are the model’s own feeling. Nobody has checked how often it is right when it says 80 %.";
  return element("details", { class: "small" }, element("summary", {}, "How to read the percentages"),
    element("p", {}, words, context.about.calibration?.words ? ` ${context.about.calibration.words}` : ""));
}

/**
 * Missing links, drawn into `place`: a question to choose, and its answers. `facts` are those of the thing, `state` is
 * what the address says. Resolves when the first answers are there.
 */
export function drawLinks(context, place, node, facts, state) {
  const kinds = kindsFor(context.about.relations, facts);
  const asked = firstQuestion(context, kinds, state);
  const answers = element("div", { class: "answers" });
  const select = element("select", { id: "kind" }, optionGroups(kinds, asked.relation));
  const sides = element("fieldset", { class: "sides" });
  const hide = element("input", { type: "checkbox", id: "hide-known" });

  const load = async () => {
    await answerList(context, node, asked, hide.checked, answers);
    return answers.querySelectorAll(".links > li").length;
  };
  const change = (part) => {
    Object.assign(asked, part);
    // Replaced, not pushed: "back" leads to the thing before, not to the question before.
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

/** All relations, those that the thing takes part in first, with how often on each side. */
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

const usualSide = (kind) => (kind.in && !kind.out ? "subject" : "object");

function firstQuestion(context, kinds, state) {
  const byName = (name) => kinds.find((kind) => kind.name === name);
  const example = byName(context.about.examples?.relation);
  const kind = byName(state.relation) ?? (example && example.out + example.in ? example : kinds[0]);
  return { relation: kind.name, askedFor: ["object", "subject"].includes(state.ask) ? state.ask : usualSide(kind) };
}

function optionGroups(kinds, chosen) {
  const option = (kind) => {
    const known = kind.out + kind.in;
    const made = element("option", { value: kind.name }, known ? `${spoken(kind)} (${count(known, "known fact")})` : spoken(kind));
    made.selected = kind.name === chosen;
    return made;
  };
  const own = kinds.filter((kind) => kind.out + kind.in);
  const other = kinds.filter((kind) => !(kind.out + kind.in));
  return [["It takes part in these", own], ["Others", other]]
    .filter(([, of]) => of.length)
    .map(([label, of]) => element("optgroup", { label }, of.map(option)));
}

function sideChoice(kind, node, side, checked, onchange) {
  const input = element("input", { type: "radio", name: "side", value: side, onchange });
  input.checked = checked;
  return element("label", {}, input, element("bdi", {}, question(kind, node.title || node.name, side)));
}

async function answerList(context, node, asked, hideKnown, place) {
  const given = asked.askedFor === "object" ? "subject" : "object";
  const question = { [given]: node.name, relation: asked.relation, known: hideKnown ? "drop" : "mark" };
  const askFor = (k) => askUpTo(context.ask, "links", question, "k", k);
  await fill(place, () => askFor(STEPS[0]), (answer) => {
    if (!answer.links.length) return element("p", { class: "empty" }, "No answer that is not known already.");
    return [...growing(context, asked, answer, askFor), sureness(context, answer.calibrated), whyNot(context)];
  }, context);
}

/** The answers, and a button that brings more without touching those that are there. */
function growing(context, asked, answer, askFor) {
  const list = element("ol", { class: "bars links" }, answer.links.map((link) => answerRow(context, answer.query, asked, link)));
  const place = element("div", { class: "more" });
  const grow = (step) => fill(place, () => askFor(STEPS[step]), (longer) => {
    const there = list.children.length;
    list.append(...longer.links.slice(there).map((link) => answerRow(context, answer.query, asked, link)));
    list.children[there]?.querySelector("a")?.focus();
    return button(step + 1, longer);
  });
  const button = (step, { links }) => step < STEPS.length && links.length === STEPS[step - 1]
    && element("button", { type: "button", onclick: () => grow(step) }, "More answers");
  place.append(button(1, answer) || "");
  return [list, place];
}

function answerRow(context, query, asked, link) {
  const triple = asked.askedFor === "object"
    ? { subject: query.subject.name, relation: query.relation.name, object: link.node.name }
    : { subject: link.node.name, relation: query.relation.name, object: query.object.name };
  const told = link.known && !heldOut(link.split);
  return element("li", {},
    element("span", { class: "name" }, nodeLink(context, link.node),
      element("span", { class: "mark" }, link.known ? knownMark(link.split) : "")),
    bar(told ? 0 : link.probability),
    element("span", { class: "value" }, told ? "" : percent(link.probability)),
    why(context, triple, "Why?", `Why ${link.node.title || link.node.name}?`));
}

const knownMark = (split) => (heldOut(split) ? "✓ known, but kept from it" : "✓ known");
