// The search box: the combobox pattern of WAI-ARIA. Answers that arrive out of order are dropped.

import { isAborted } from "./api.js";
import { announce, byId, element } from "./page.js";
import { count } from "./words.js";

const SEARCH_DELAY_MS = 110; // milliseconds without a key press before the search

/** `find(text, signal)` returns nodes, best first; `choose(node)` is called with the selected one. */
export function searchBox(find, choose) {
  const [input, list, form] = [byId("query"), byId("found"), byId("search")];
  let nodes = [];
  let active = -1;
  let answered = null; // the text that `nodes` were found for
  let takeFirst = false; // Enter was pressed before the response arrived
  let timer = 0;
  let asking = null;

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    highlight(-1);
  }

  function highlight(index) {
    active = index;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === index)));
    if (index < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", `found-${index}`);
    list.children[index].scrollIntoView({ block: "nearest" });
  }

  function pick(node) {
    forget();
    input.value = "";
    choose(node);
  }

  function forget() {
    clearTimeout(timer);
    asking?.abort();
    [nodes, answered, takeFirst] = [[], null, false];
    close();
    list.replaceChildren();
  }

  function show(text) {
    const options = nodes.map((node, index) => element("li",
      { role: "option", id: `found-${index}`, "aria-selected": "false", onclick: () => pick(node) },
      element("span", { class: "title" }, marked(node.title || node.name, text)),
      element("span", { class: "muted" }, [node.description ?? fullName(node), count(node.degree, "fact")].filter(Boolean).join(" · "))));
    showLines(options.length ? options : [line(`Nothing has “${text}” in its name.`)]);
    announce(options.length ? `${count(options.length, "thing")} found. Choose with the arrow keys.` : `Nothing has ${text} in its name.`);
  }

  /** The full name, if several nodes have the same title. */
  const fullName = (node) => (nodes.filter((other) => other.title === node.title).length > 1 ? node.name : null);

  function showLines(lines) {
    list.replaceChildren(...lines);
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    highlight(-1);
  }

  async function search() {
    const text = input.value.trim();
    asking?.abort();
    if (!text) return forget();
    const mine = (asking = new AbortController());
    try {
      const found = await find(text, mine.signal);
      if (asking !== mine) return;
      [nodes, answered] = [found, text];
      if (takeFirst && nodes.length) return pick(nodes[0]);
      takeFirst = false;
      show(text);
    } catch (error) {
      if (isAborted(error) || asking !== mine) return;
      [nodes, answered, takeFirst] = [[], null, false];
      showLines([line(error.message)]);
      announce(error.message);
    }
  }

  function enter() {
    const text = input.value.trim();
    if (active >= 0) return pick(nodes[active]);
    if (answered === text && nodes.length) return pick(nodes[0]);
    if (!text) return;
    takeFirst = true;
    clearTimeout(timer);
    search();
  }

  function step(by) {
    if (list.hidden) return nodes.length && answered === input.value.trim() ? show(answered) : search();
    if (!nodes.length) return;
    // The place before the first option is the input itself.
    const places = nodes.length + 1;
    highlight(((active + 1 + by + places) % places) - 1);
  }

  input.addEventListener("input", () => {
    takeFirst = false;
    clearTimeout(timer);
    timer = setTimeout(search, SEARCH_DELAY_MS);
  });
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const keys = {
      ArrowDown: () => step(1),
      ArrowUp: () => step(-1),
      Escape: () => (list.hidden ? (forget(), (input.value = "")) : close()),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  input.addEventListener("blur", close);
  list.addEventListener("pointerdown", (event) => event.preventDefault()); // the input keeps the focus
  form.addEventListener("submit", (event) => (event.preventDefault(), enter()));
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea, dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
  });
  return { forget };
}

const line = (words) => element("li", { class: "nothing", role: "presentation" }, words);

/** The title with the typed text highlighted. */
function marked(title, text) {
  const at = title.toLowerCase().indexOf(text.toLowerCase());
  if (at < 0 || title.toLowerCase().length !== title.length) return element("bdi", {}, title);
  const end = at + text.length;
  return element("bdi", {}, title.slice(0, at), element("mark", {}, title.slice(at, end)), title.slice(end));
}
