// The page as a whole. What is shown follows from the address: #model=…&node=…, so that links, back and forward work.

import { Trouble, ask, hasToken } from "./api.js";
import { askFacts, drawFacts } from "./facts.js";
import { askClass, drawClass, drawLinks } from "./guesses.js";
import { announce, byId, element, fill, hash, named, troubleBox } from "./page.js";
import { searchBox } from "./search.js";
import { count, howGood, knows } from "./words.js";

const view = byId("view");
const WAIT_FOR_GUESS = 400; // milliseconds that facts wait for the guess, so that both appear at once
let context = null; // the model that is shown, and how to ask it
let served = []; // all models, in short
let latest = 0;
let chosen = null;
const modelChosen = new Promise((resolve) => (chosen = resolve)); // a search typed before waits for this

const state = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** Everything that parts of the page need to know about one model. */
function contextOf(about) {
  const folder = `models/${encodeURIComponent(about.name)}`;
  return {
    about,
    ask: (what, parameters, options) => ask(`${folder}/${what}`, parameters, options),
    href: (name) => hash({ model: about.name, node: name }),
  };
}

/** Draws what the address says; `scrolled` is where the page was when a person comes back to it. */
async function show({ scrolled = 0, first = false } = {}) {
  const turn = ++latest;
  const current = () => turn === latest;
  view.setAttribute("aria-busy", "true");
  try {
    await chooseModel(state().model, current);
    if (!current()) return;
    const wanted = state();
    const drawn = wanted.node ? await nodePage(wanted, current) : startPage();
    if (!current()) return;
    view.replaceChildren(...drawn);
    markWhenPainted(wanted.node ? "node-drawn" : "start-drawn");
  } catch (error) {
    if (!current()) return;
    view.replaceChildren(element("section", {}, element("h1", { tabindex: "-1" }, "That did not work"), troubleBox(error, () => show(), context)));
    title("That did not work");
  }
  view.removeAttribute("aria-busy");
  if (!first) view.querySelector("h1")?.focus({ preventScroll: true });
  scrollTo(0, scrolled);
}

/** For benchmarks/page_load.py: the task after a frame's callback comes behind its pixels. */
const markWhenPainted = (name) => requestAnimationFrame(() => setTimeout(() => performance.mark(name)));

async function chooseModel(name, current) {
  const [{ models }, early] = await Promise.all([ask("models"), name ? ask(`models/${encodeURIComponent(name)}`).catch(() => null) : null]);
  if (!models.length) throw new Trouble("The server has no model to show.");
  if (name && !models.some((model) => model.name === name)) {
    throw new Trouble(`No model called “${name}” is served. There is: ${models.map((model) => model.name).join(", ")}.`);
  }
  const about = early ?? (await ask(`models/${encodeURIComponent(name ?? models[0].name)}`));
  if (!current()) return;
  if (context?.about.name !== about.name) search.forget();
  served = models;
  context = contextOf(about);
  drawModelChoice();
  drawAbout();
  chosen();
  performance.mark("search-usable");
}

function drawModelChoice() {
  const select = byId("model");
  if (select.options.length !== served.length) {
    select.replaceChildren(...served.map((model) => element("option", { value: model.name }, model.name)));
  }
  select.value = context.about.name;
  byId("model-choice").hidden = served.length < 2;
  byId("brand").setAttribute("href", hash({ model: context.about.name }));
}

function drawAbout() {
  const { about } = context;
  byId("about").replaceChildren(
    element("strong", {}, `${about.model} on ${about.dataset}: `), knows(about), " ", howGood(about));
  byId("foot").replaceChildren(modelCard(), element("p", {},
    "Guesses are made by a program that knows nothing but these facts. They can be wrong. ",
    // A plain link carries no token.
    !hasToken() && element("a", { href: "/openapi.json" }, "The API, for programs")));
}

function modelCard() {
  const text = element("pre", { tabindex: "0", "aria-label": "Model card" });
  const place = element("div", {});
  const open = (event) => {
    if (!event.target.open || place.childElementCount) return;
    fill(place, () => context.ask("card"), (card) => (text.append(card), text));
  };
  return element("details", { class: "small", ontoggle: open }, element("summary", {}, "More about this model"), place);
}

const title = (words) => (document.title = `${words} · rgcn explorer`);

function startPage() {
  const { about } = context;
  const examples = about.examples?.nodes ?? [];
  title(`${about.model} on ${about.dataset}`);
  return [element("section", { class: "start" },
    element("h1", { tabindex: "-1" }, "What does a computer guess after reading facts?"),
    element("p", {}, `Someone gave a computer ${count(about.counts.triples, "fact")}: this thing stands in that relation to that thing. `,
      "It was told nothing else, and guesses from the pattern of facts alone. Here you can look at the facts, at its guesses, and ask it why."),
    element("p", {}, "Type part of a name above, or begin with one of these:"),
    element("ul", { class: "examples" }, examples.map((node) => element("li", {},
      element("a", { href: context.href(node.name) }, named(node), node.description && element("span", { class: "muted" }, node.description))))))];
}

async function nodePage(wanted, current) {
  const [classifies, links] = ["classes", "links"].map((kind) => context.about.answers.includes(kind));
  if (classifies) askClass(context, wanted.node).catch(() => {}); // beside the facts; failure is said below
  const answer = await askFacts(context, wanted.node);
  if (!current()) return [];
  const { node } = answer;
  title(node.title || node.name);
  announce(`${node.title || node.name}: ${count(answer.total, "fact")}.`);
  const ready = [];
  const part = (id, title, draw) => {
    const place = element("div", { class: "guess" });
    ready.push(draw(place));
    return element("section", { "aria-labelledby": id }, element("h2", { id }, title), place);
  };
  const drawn = [
    classifies && part("guess-title", "What the computer guesses", (place) =>
      fill(place, () => askClass(context, wanted.node), (found) => drawClass(context, found), context)),
    links && part("links-title", "What may be missing", (place) => drawLinks(context, place, node, answer.facts, wanted)),
    !ready.length && element("section", {}, "This page has no question for this model."),
  ];
  await Promise.race([Promise.all(ready), new Promise((resolve) => setTimeout(resolve, WAIT_FOR_GUESS))]);
  return [heading(node), element("div", { class: "columns" }, element("div", {}, drawn), drawFacts(context, answer))];
}

function heading(node) {
  return element("header", { class: "heading" },
    element("h1", { tabindex: "-1" }, element("bdi", {}, node.title || node.name)),
    node.description && element("p", {}, node.description),
    node.name !== node.title && element("p", { class: "muted" }, element("code", {}, node.name)));
}

const search = searchBox(
  async (text, signal) => {
    await modelChosen;
    return (await context.ask("search", { q: text, limit: 10 }, { signal })).nodes;
  },
  (node) => {
    const address = context.href(node.name);
    if (address === location.hash) view.querySelector("h1")?.focus();
    else location.hash = address;
  },
);

byId("model").addEventListener("change", (event) => {
  const other = served.find((model) => model.name === event.target.value);
  // Two models of the same data know the same things.
  location.hash = hash({ model: other.name, node: other.dataset === context.about.dataset ? state().node : null });
});
document.querySelector("[data-skip]").addEventListener("click", (event) => {
  event.preventDefault(); // the address belongs to the state of the page
  view.focus();
});

// Where a person was on the page they come back to.
history.scrollRestoration = "manual";
let noting = 0;
addEventListener("scroll", () => {
  clearTimeout(noting);
  noting = setTimeout(() => history.replaceState({ scrolled: scrollY }, ""), 100);
}, { passive: true });
addEventListener("popstate", (event) => {
  clearTimeout(noting);
  show({ scrolled: event.state?.scrolled ?? 0 });
});

show({ first: true, scrolled: history.state?.scrolled ?? 0 });
