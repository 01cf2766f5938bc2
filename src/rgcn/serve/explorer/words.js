// Everything that is put into words: numbers, relations, held-out facts.

const numbers = new Intl.NumberFormat("en");

export const count = (number, one, many) => `${numbers.format(number)} ${number === 1 ? one : (many ?? `${one}s`)}`;

/** For a column of figures: one decimal, and never a certainty that rounding made. */
export function percent(share) {
  if (share < 0.001 && share > 0) return "< 0.1 %";
  if (share > 0.999 && share < 1) return "> 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

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
    : sentence(relation, "…", `${title}?`, (words) => `${title} named as ${words} of …?`);

const SPLITS = {
  train: "it was told this while learning",
  valid: "kept from it while learning",
  test: "kept from it while learning",
};

export const toldOrNot = (split) => SPLITS[split] ?? "part of the data";
export const heldOut = (split) => split === "valid" || split === "test";

const METHODS = {
  "integrated-gradients": "by turning the facts up bit by bit",
  "edge-mask": "by hiding facts and watching the answer",
};

export const methodWords = (method) => METHODS[method] ?? method;

/** What a model knows, and what it does with that, in a sentence. */
export function knows({ task, counts }) {
  const what = task === "node-classification" ? `which of ${count(counts.classes, "group")} a thing belongs to` : "which facts are missing";
  return `It read ${count(counts.triples, "fact")} of ${count(counts.relations, "kind")} about ${count(counts.nodes, "thing")}, and guesses ${what}.`;
}

/** How good it is, where that was measured. */
export function howGood(about) {
  const measured = about.metrics.test ?? about.metrics.valid ?? {};
  if (typeof measured.accuracy === "number") return `Right for ${roughly(measured.accuracy)} of the things whose group was kept from it.`;
  if (typeof measured["hits@10"] === "number") {
    const [ten, one] = [measured["hits@10"], measured["hits@1"]];
    const first = typeof one === "number" ? `, and the very first for ${roughly(one)}` : "";
    return `Tested on facts that were kept from it: the right answer is among its first ten guesses for ${roughly(ten)}${first}.`;
  }
  return "";
}
