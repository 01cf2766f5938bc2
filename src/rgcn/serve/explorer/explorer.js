// The page as a whole. The URL (#model=…&node=…) determines what is shown, so that links, back and forward work.

import { PageError, ask, hasToken } from "./api.js";
import { requestFacts, drawFacts } from "./facts.js";
import { requestClass, drawClass, drawLinks } from "./guesses.js";
import { announce, byId, element, fill, hash, named, errorBox } from "./page.js";
import { searchBox } from "./search.js";
import { count, howGood, knows } from "./words.js";

const view = byId("view");
const PREDICTION_WAIT_MS = 400; // milliseconds that the facts wait for the prediction, so that both appear together
let context = null; // the selected model, and how to query it
let allModels = []; // summaries of all models
let latest = 0;
let chosen = null;
const modelChosen = new Promise((resolve) => (chosen = resolve)); // an early search waits for this

const state = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** What the parts of the page need to know about one model. */
function contextOf(about) {
  const folder = `models/${encodeURIComponent(about.name)}`;
  return {
    about,
    ask: (what, parameters, options) => ask(`${folder}/${what}`, parameters, options),
    href: (name) => hash({ model: about.name, node: name }),
  };
}

/** Draws what the URL says; `scrolled` is the scroll position to restore. */
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
    view.replaceChildren(element("section", {}, element("h1", { tabindex: "-1" }, "That did not work"), errorBox(error, () => show(), context)));
    title("That did not work");
  }
  view.removeAttribute("aria-busy");
  if (!first) view.querySelector("h1")?.focus({ preventScroll: true });
  scrollTo(0, scrolled);
}

/** For benchmarks/page_load.py: a task started in a frame's callback runs after the frame is painted. */
const markWhenPainted = (name) => requestAnimationFrame(() => setTimeout(() => performance.mark(name)));

async function chooseModel(name, current) {
  const [{ models }, early] = await Promise.all([ask("models"), name ? ask(`models/${encodeURIComponent(name)}`).catch(() => null) : null]);
  if (!models.length) throw new PageError("The server has no model to show.");
  if (name && !models.some((model) => model.name === name)) {
    throw new PageError(`No model called “${name}” is served. There is: ${models.map((model) => model.name).join(", ")}.`);
  }
  const about = early ?? (await ask(`models/${encodeURIComponent(name ?? models[0].name)}`));
  if (!current()) return;
  if (context?.about.name !== about.name) search.forget();
  allModels = models;
  context = contextOf(about);
  drawModelChoice();
  drawAbout();
  chosen();
  performance.mark("search-usable");
}

function drawModelChoice() {
  const select = byId("model");
  if (select.options.length !== allModels.length) {
    select.replaceChildren(...allModels.map((model) => element("option", { value: model.name }, model.name)));
  }
  select.value = context.about.name;
  byId("model-choice").hidden = allModels.length < 2;
  byId("brand").setAttribute("href", hash({ model: context.about.name }));
}

function drawAbout() {
  const { about } = context;
  byId("about").replaceChildren(
    element("strong", {}, `${about.model} on ${about.dataset}: `), knows(about), " ", howGood(about));
  byId("foot").replaceChildren(modelCard(), element("p", {},
    "Guesses are made by a program that knows nothing but these facts. They can be wrong. ",
    // A plain link cannot send the token.
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
    element("p", {}, `A computer program read ${count(about.counts.triples, "fact")}: this thing has that relation to that thing. `,
      "It knows nothing else, and guesses from patterns in the facts. Here you can read the facts, see its guesses, and ask for explanations."),
    element("p", {}, "Type part of a name above, or begin with one of these:"),
    element("ul", { class: "examples" }, examples.map((node) => element("li", {},
      element("a", { href: context.href(node.name) }, named(node), node.description && element("span", { class: "muted" }, node.description))))))];
}

async function nodePage(wanted, current) {
  const [classifies, links] = ["classes", "links"].map((kind) => context.about.answers.includes(kind));
  if (classifies) requestClass(context, wanted.node).catch(() => {}); // in parallel to the facts; errors are shown below
  const answer = await requestFacts(context, wanted.node);
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
      fill(place, () => requestClass(context, wanted.node), (found) => drawClass(context, found), context)),
    links && part("links-title", "What may be missing", (place) => drawLinks(context, place, node, answer.facts, wanted)),
    !ready.length && element("section", {}, "This page cannot show predictions of this model."),
  ];
  await Promise.race([Promise.all(ready), new Promise((resolve) => setTimeout(resolve, PREDICTION_WAIT_MS))]);
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
  const other = allModels.find((model) => model.name === event.target.value);
  // Models of the same data set have the same nodes.
  location.hash = hash({ model: other.name, node: other.dataset === context.about.dataset ? state().node : null });
});
document.querySelector("[data-skip]").addEventListener("click", (event) => {
  event.preventDefault(); // the URL holds the state of the page
  view.focus();
});

// Restores the scroll position after back and forward.
history.scrollRestoration = "manual";
let scrollTimer = 0;
addEventListener("scroll", () => {
  clearTimeout(scrollTimer);
  scrollTimer = setTimeout(() => history.replaceState({ scrolled: scrollY }, ""), 100);
}, { passive: true });
addEventListener("popstate", (event) => {
  clearTimeout(scrollTimer);
  show({ scrolled: event.state?.scrolled ?? 0 });
});

show({ first: true, scrolled: history.state?.scrolled ?? 0 });
