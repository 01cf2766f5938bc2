// Everything that is put into words: numbers, relations, held-out facts.

const numbers = new Intl.NumberFormat("en");

export const count = (number, one, many) => `${numbers.format(number)} ${number === 1 ? one : (many ?? `${one}s`)}`;

/** This page says "fact" and "thing" where others say "triple" and "node". */
export const plain = (words) => words.replace(/\btriple/g, "fact").replace(/\bTriple/g, "Fact").replace(/\bnode/g, "thing");

/** For a column of figures: one decimal, and never a certainty that rounding made. */
export function percent(share) {
  if (share < 0.001 && share > 0) return "< 0.1 %";
  if (share > 0.999 && share < 1) return "> 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** How sure a model is of an answer, else its own number. */
export const said = ({ probability, score }) => (probability === null ? score.toPrecision(3) : percent(probability));

/** For a sentence: a whole number. */
export function roughly(share) {
  if (share > 0.99 && share < 1) return "more than 99 %";
  if (share < 0.01 && share > 0) return "less than 1 %";
  return `${Math.round(100 * share)} %`;
}

/** "exports_to", "worksAtProject" and "/common/topic/webpage./common/webpage/category" as a person says them. */
export const spoken = (relation) =>
  (relation.title || relation.name)
    .split(/\.(?=\/)/)
    .map((part) => part.replace(/^.*\/(?=.)/, ""))
    .join(" / ")
    .replace(/[_\s]+/g, " ")
    .replace(/(?<=[\p{Ll}\d])\p{Lu}(?=\p{Ll})/gu, (capital) => ` ${capital.toLowerCase()}`)
    .trim();

// Nobody tells us what a relation's name is; its words are all there is to see.
// "borders" and "exports to" stand between two things; "has part" and "works at project" would stumble there and get
// arrows; the rest, "capital" and "climate", is something that a thing has.
const PREPOSITION = /\b(to|of|in|from|with|on|by|at|for|as|into|about|than)$/;
const VERB = /^(has|is|are|was|were|\p{L}*[^siu\P{L}]s)$/u;

function sentence(relation, subject, object, noun) {
  const words = spoken(relation);
  const [first, ...rest] = words.split(" ");
  if (PREPOSITION.test(words) || (VERB.test(first) && !rest.length)) return `${subject} ${words} ${object}`;
  return VERB.test(first) ? `${subject} → ${words} → ${object}` : noun(words);
}

/** What stands before the list of things that a thing points to. */
export const outgoing = (relation) => spoken(relation);

/** What stands before the list of things that point to it. */
export const incoming = (relation) => sentence(relation, "…", "it", (words) => `named as ${words} of`);

/** A question with its gap; `title` stands where the thing is that we know. */
export const question = (relation, title, askedFor) =>
  askedFor === "object"
    ? sentence(relation, title, "…?", (words) => `${words} of ${title}: …?`)
    : who(spoken(relation), title);

function who(words, title) {
  const verb = VERB.test(words.split(" ")[0]);
  return verb || PREPOSITION.test(words) ? `Who or what ${verb ? "" : "is "}${words} ${title}?` : `What has ${title} as ${words}?`;
}

export const heldOut = (split) => split === "valid" || split === "test";
export const toldOrNot = (split) => (heldOut(split) ? "kept from it" : "it was told this");

const METHODS = {
  paths: "by following the ways to the answer back",
  "integrated-gradients": "by turning the facts up bit by bit",
  "edge-mask": "by hiding facts and watching the answer",
};

export const methodWords = (method) => METHODS[method] ?? method;

/** What a model knows, and what it does with that, in a sentence. */
export const knows = ({ answers, counts }) =>
  [`It read ${count(counts.triples, "fact")} of ${count(counts.relations, "kind")} about ${count(counts.nodes, "thing")}`,
    answers.includes("classes") && `guesses which of ${count(counts.classes, "group")} a thing belongs to`,
    answers.includes("links") && "guesses which facts are missing"].filter(Boolean).join(", and ") + ".";

/** How good it is, where that was measured. */
export function howGood(about) {
  const measured = about.metrics.test ?? about.metrics.valid;
  if (!measured) return "";
  if (typeof measured.accuracy === "number") return `Right for ${roughly(measured.accuracy)} of the things whose group was kept from it.`;
  const ten = measured["hits@10"];
  if (typeof ten === "number") return `Tested on facts that were kept from it: the right answer is among its first ten guesses for ${roughly(ten)}.`;
  return `Tested: ${about.headline}.`;
}
