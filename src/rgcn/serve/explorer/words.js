// Text for numbers, relations, questions and models.

const numbers = new Intl.NumberFormat("en");

export const count = (number, one, many) => `${numbers.format(number)} ${number === 1 ? one : (many ?? `${one}s`)}`;

/** Replaces the technical terms "triple" and "node" by "fact" and "thing", as on all of this page. */
export const plain = (words) => words.replace(/\btriple/g, "fact").replace(/\bTriple/g, "Fact").replace(/\bnode/g, "thing");

/** A percentage for a column of numbers: one decimal, never rounded to 0 % or 100 %. */
export function percent(share) {
  if (share < 0.001 && share > 0) return "< 0.1 %";
  if (share > 0.999 && share < 1) return "> 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** The probability of an answer, or its score if there is none. */
export const formatConfidence = ({ probability, score }) => (probability === null ? score.toPrecision(3) : percent(probability));

/** A percentage for a sentence: a whole number. */
export function roughly(share) {
  if (share > 0.99 && share < 1) return "more than 99 %";
  if (share < 0.01 && share > 0) return "less than 1 %";
  return `${Math.round(100 * share)} %`;
}

/** "exports_to", "worksAtProject" and "/common/topic/webpage./common/webpage/category" as readable words. */
export const relationWords = (relation) =>
  (relation.title || relation.name)
    .split(/\.(?=\/)/)
    .map((part) => part.replace(/^.*\/(?=.)/, ""))
    .join(" / ")
    .replace(/[_\s]+/g, " ")
    .replace(/(?<=[\p{Ll}\d])\p{Lu}(?=\p{Ll})/gu, (capital) => ` ${capital.toLowerCase()}`)
    .trim();

// Guesses from its words how a relation's name fits into a sentence.
// "borders" and "exports to" fit between two names; "has part" and "works at project" do not and get arrows;
// others, such as "capital" and "climate", are nouns.
const PREPOSITION = /\b(to|of|in|from|with|on|by|at|for|as|into|about|than)$/;
const VERB = /^(has|is|are|was|were|\p{L}*[^siu\P{L}]s)$/u;

function sentence(relation, subject, object, noun) {
  const words = relationWords(relation);
  const [first, ...rest] = words.split(" ");
  if (PREPOSITION.test(words) || (VERB.test(first) && !rest.length)) return `${subject} ${words} ${object}`;
  return VERB.test(first) ? `${subject} → ${words} → ${object}` : noun(words);
}

/** The heading of the list of objects. */
export const outgoing = (relation) => relationWords(relation);

/** The heading of the list of subjects. */
export const incoming = (relation) => sentence(relation, "…", "it", (words) => `named as ${words} of`);

/** A question with a gap; `title` is the known node. */
export const question = (relation, title, askedFor) =>
  askedFor === "object"
    ? sentence(relation, title, "…?", (words) => `${words} of ${title}: …?`)
    : who(relationWords(relation), title);

function who(words, title) {
  const verb = VERB.test(words.split(" ")[0]);
  return verb || PREPOSITION.test(words) ? `Who or what ${verb ? "" : "is "}${words} ${title}?` : `What has ${title} as ${words}?`;
}

export const heldOut = (split) => split === "valid" || split === "test";
export const splitWords = (split) => (heldOut(split) ? "kept from it" : "it was told this");

const METHODS = {
  paths: "by following the ways to the answer back",
  "integrated-gradients": "by turning the facts up bit by bit",
  "edge-mask": "by hiding facts and watching the answer",
};

export const methodWords = (method) => METHODS[method] ?? method;

/** A sentence about the training data of a model and what it predicts. */
export const knows = ({ answers, counts }) =>
  [`It read ${count(counts.triples, "fact")} of ${count(counts.relations, "kind")} about ${count(counts.nodes, "thing")}`,
    answers.includes("classes") && `guesses which of ${count(counts.classes, "group")} a thing belongs to`,
    answers.includes("links") && "guesses which facts are missing"].filter(Boolean).join(", and ") + ".";

/** A sentence about the quality of a model, if it was measured. */
export function howGood(about) {
  const measured = about.metrics.test ?? about.metrics.valid;
  if (!measured) return "";
  if (typeof measured.accuracy === "number") return `Right for ${roughly(measured.accuracy)} of the things whose group was kept from it.`;
  const ten = measured["hits@10"];
  if (typeof ten === "number") return `Tested on facts that were kept from it: the right answer is among its first ten guesses for ${roughly(ten)}.`;
  return `Tested: ${about.headline}.`;
}
