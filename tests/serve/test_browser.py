"""Test the explorer page in a real browser: keyboard and mouse, wide and narrow, light and dark."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import browser_or_skip, served

import rgcn
from rgcn.runs import load_configuration, train

EXPLORER = Path(__file__).parents[2] / "src" / "rgcn" / "serve" / "explorer"
CLASSIFIER, PREDICTOR, UNCALIBRATED = "classes", "links", "uncalibrated"
SETTINGS = {
    CLASSIFIER: ("rgcn/nc-world", ["training.epochs=20"]),
    # Trained until known triples are among its best answers.
    PREDICTOR: ("rgcn/lp-world", ["training.steps=30", "model.embedding=32", "training.learning_rate=0.05"]),
}
TOKEN = "open-sesame-1234"
HOSTILE = [
    "<script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 2'>",
    "http://example.org/" + "very-long-" * 60 + "name",
    "שלום עולם",
    "‮abc \"quoted\" 'single' & <b>bold</b>",
    "javascript:window.broken = 3",
    "#model=x&node=y",
]


@pytest.fixture(scope="session")
def chromium():
    browser = browser_or_skip()
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def site(chromium, tmp_path_factory):
    """Serve two models of `world`, and one of a graph without held-out data. Skipped without a browser."""
    here, kg = tmp_path_factory.mktemp("looked-at"), rgcn.load("world")
    for name, (configuration, changes) in SETTINGS.items():
        train(load_configuration(configuration, changes), kg, here / name)
    books = [(f"p{i}", "reads", f"book{(i + j) % 5}") for i in range(15) for j in range(2)]
    reading = rgcn.KnowledgeGraph.from_triples(books, name="reading")
    small = rgcn.LinkPredictor("rgcn", embedding=8, steps=5, device="cpu").fit(reading)
    small.save(str(here / UNCALIBRATED))
    with served([here / name for name in (*SETTINGS, UNCALIBRATED)]) as url:
        yield url


@pytest.fixture(scope="module")
def guarded_site(chromium, tmp_path_factory):
    """Start a server that requires a token, with a model whose names contain HTML."""
    people = [*HOSTILE, *(f"p{i}" for i in range(7))]
    graph = rgcn.KnowledgeGraph.from_triples([(name, "reads<i>", f"book{i % 2}") for i, name in enumerate(people)])
    labels = {name: ["<em>one</em>", "http://example.org/classes#two"][i % 2] for i, name in enumerate(people)}
    folder = tmp_path_factory.mktemp("hostile") / "names <b> & 'such'"
    rgcn.NodeClassifier(epochs=4, device="cpu", seed=0).fit(graph.with_labels({"train": labels})).save(str(folder))
    with served([folder], TOKEN) as url:
        yield url


@pytest.fixture
def browser(chromium, request):
    """Return a browser; after the test its console must be empty, and no other host contacted."""
    chromium.fresh()
    yield chromium
    chromium.offline(False)
    complaints = [row for row in chromium.complaints() if "status of 40" not in row and "ERR_INTERNET" not in row]
    ours = ("http://127.0.0.1:", "about:", "data:")
    outside = [address for address in chromium.requested() if not address.startswith(ours)]
    assert complaints == []
    assert outside == []


def address(site, model, node, **more):
    parts = {"model": model, "node": node, **more}
    return f"{site}/#" + "&".join(f"{key}={quote(value, safe='')}" for key, value in parts.items())


def choose(browser, select, value):
    """Choose an option of a select element."""
    from selenium.webdriver.support.ui import Select

    Select(browser.see(f"#{select}")).select_by_value(value)


def test_the_page_is_small_and_contacts_no_other_host():
    files = sorted(EXPLORER.iterdir())
    assert sum(file.stat().st_size for file in files) < 60_000
    for file in files:
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|insertAdjacentHTML|document\.write|\beval\(|@import|url\(", text), (
            file.name
        )
    page = (EXPLORER / "index.html").read_text(encoding="utf-8")
    assert not re.search(r'\s(on\w+|style)=|<style|<script(?! type="module" src="/assets/)', page)
    # The preloaded modules are those that the page imports, so that they load in parallel.
    named = set(re.findall(r'modulepreload" href="/assets/([\w.]+)"', page)) | {"explorer.js"}
    assert named == {file.name for file in files if file.suffix == ".js"}


def test_exploring_a_classifier(browser, site):
    from selenium.webdriver.common.keys import Keys

    browser.open(site)
    browser.see(".about", "facts")
    browser.see(".about", "Right for")
    browser.see(".examples a")
    browser.screenshot("start")

    browser.press("/")  # the key that leads to the search box
    assert browser.focused.get_attribute("id") == "query"
    browser.press("switz")
    browser.see("#found [role=option]", "Switzerland")
    assert browser.focused.get_attribute("aria-expanded") == "true"
    browser.press(Keys.ARROW_DOWN)
    chosen = browser.focused.get_attribute("aria-activedescendant")
    assert browser.see(f"#{chosen}").get_attribute("aria-selected") == "true"
    browser.screenshot("search")
    browser.press(Keys.ENTER)

    browser.wait_until_loaded("Switzerland")
    assert browser.focused.tag_name == "h1"
    assert browser.driver.title.startswith("Switzerland")
    assert "Switzerland" in browser.run("return document.getElementById('announcement').textContent")
    assert "node=Switzerland" in browser.driver.current_url
    assert browser.see("dt", "capital").find_element("xpath", "following-sibling::dd").text == "Bern"
    assert "… borders it" in browser.texts("dt")
    browser.see(".guess", "sure")
    browser.see(".guess", "The data say: Europe")
    rows = browser.texts(".guess .bars > li")
    assert len(rows) == 5
    assert all(re.search(r"\d %", row) for row in rows)
    browser.click(".guess button.quiet", "Show all 11 groups")
    assert len(browser.all(".guess .bars > li")) == 11

    browser.click("button.why-button")
    browser.see(".drawing svg")
    browser.see(".fidelity", "Can you believe it?")
    assert browser.all(".reasons .triple")
    browser.whole_screenshot("classifier")

    others = [link for link in browser.all(".drawing a") if "Switzerland" not in link.get_dom_attribute("href")]
    name = others[0].find_element("css selector", "[data-node]").get_attribute("data-node")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", others[0])
    others[0].click()
    browser.wait_until_loaded(name)
    assert browser.focused.tag_name == "h1"
    browser.driver.back()
    browser.wait_until_loaded("Switzerland")
    browser.driver.forward()
    browser.wait_until_loaded(name)


def test_exploring_a_link_predictor(browser, site):
    browser.open(address(site, PREDICTOR, "Switzerland", relation="member_of"))
    browser.wait_until_loaded("Switzerland")
    browser.see(".about", "first ten guesses")
    browser.see(".sides", "Switzerland member of …?")
    assert len(browser.all(".links > li")) == 10
    rows = browser.texts(".links > li")
    known, kept = ([row for row in rows if words in row] for words in ("✓ in the data", "✓ true, and kept from it"))
    assert known
    assert kept
    assert not set(known) & set(kept)
    assert all("%" in row for row in kept)  # only answers that are not known get a probability
    assert not any("%" in row for row in known)
    browser.whole_screenshot("links")

    browser.click("#hide-known")
    browser.until(lambda: not any("in the data" in row for row in browser.texts(".links > li")), "known ones hidden")
    assert len(browser.all(".links > li")) == 10
    before = browser.texts(".links > li")
    assert [row for row in before if "kept from it" in row][: len(kept)] == kept
    browser.click(".more button", "More answers")
    browser.until(lambda: len(browser.all(".links > li")) == 25, "25 answers")
    assert browser.texts(".links > li")[:10] == before
    assert browser.focused.tag_name == "a"

    browser.click(".sides label", "Who or what is member of Switzerland?")
    browser.until(lambda: "ask=subject" in browser.driver.current_url, "the question in the address")
    browser.wait_until_loaded("Switzerland")
    choose(browser, "kind", "borders")
    browser.see(".sides", "Switzerland borders …?")
    browser.wait_until_loaded("Switzerland")
    browser.click("#hide-known")
    browser.wait_until_loaded("Switzerland")

    why = browser.see(".links .why-button")
    assert why.get_attribute("aria-label").startswith("Why ")
    browser.click(".links .why-button")
    browser.see(".links .drawing svg")
    assert browser.see(".links .why-button").get_attribute("aria-expanded") == "true"
    browser.whole_screenshot("links-why")
    browser.click(".links .why-button")
    assert not browser.all(".links .drawing")[0].is_displayed()

    answer = browser.texts(".links .node-link")[0]
    browser.click(".links .node-link")
    browser.wait_until_loaded(answer)
    browser.driver.back()
    browser.wait_until_loaded("Switzerland")
    browser.see(".sides", "Switzerland borders …?")  # the question that was asked, not the first one again

    choose(browser, "model", CLASSIFIER)
    browser.see(".guess", "The data say: Europe")
    browser.wait_until_loaded("Switzerland")


def test_without_calibration_scores_are_shown_with_a_note(browser, site):
    browser.open(address(site, UNCALIBRATED, "p0"))
    browser.wait_until_loaded("p0")
    browser.see(".answers", "Not calibrated: the order counts, not the number.")
    browser.see(".answers", "No probabilities, only scores")
    browser.click("#hide-known")
    rows = lambda: browser.texts(".links > li")  # noqa: E731
    browser.until(lambda: rows() and not any("in the data" in row for row in rows()), "known ones hidden")
    values = browser.texts(".links > li > .value")
    assert not any("%" in value for value in values)
    assert [float(value) for value in values] == sorted(map(float, values), reverse=True)
    widths = browser.run("return [...document.querySelectorAll('.links .track span')].map((e) => e.style.width)")
    lengths = [float(width.rstrip("%")) for width in widths]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == 100
    browser.click(".links .why-button")
    browser.see(".panel .fidelity", "score")
    assert "%" not in browser.see(".panel .fidelity").text
    browser.whole_screenshot("uncalibrated")


def test_every_control_can_be_used_by_keyboard(browser, site):
    from selenium.webdriver.common.keys import Keys

    def tab_to(selector):
        for _ in range(40):
            browser.press(Keys.TAB)
            if browser.run("return document.activeElement.matches(arguments[0])", selector):
                outlined = "const s = getComputedStyle(document.activeElement); return s.outlineStyle + s.outlineWidth"
                assert browser.run(outlined) == "solid2px" or selector.startswith(".drawing a")
                return
        raise AssertionError(f"40 tabs do not lead to {selector}")

    browser.open(site)
    browser.see(".examples a")
    tab_to(".skip")
    browser.press(Keys.ENTER)
    assert browser.focused.tag_name == "main"
    name = browser.texts(".examples a")[0]
    tab_to(".examples a")
    browser.press(Keys.ENTER)
    browser.wait_until_loaded(name)
    tab_to(".why-button")
    browser.press(Keys.ENTER)
    browser.see(".drawing svg")
    tab_to(".drawing a:has([data-node]:not(.asked))")
    name = browser.focused.get_attribute("aria-label")
    browser.press(Keys.ENTER)
    browser.wait_until_loaded(name)
    assert browser.focused.tag_name == "h1"


def test_facts_of_a_hub_are_collapsed_and_paginated(browser, site):
    browser.open(address(site, CLASSIFIER, "China"))
    browser.wait_until_loaded("China")
    shown = len(browser.all(".things li"))
    browser.click(".things + button", "Show all")
    assert len(browser.all(".things li")) > shown
    assert browser.focused.tag_name == "a"
    browser.see(".more", "400 of")
    browser.click(".more button", "more")
    browser.until(lambda: "400 of" not in browser.see("[aria-labelledby=facts-title]").text, "the rest")


@pytest.mark.parametrize("model", [CLASSIFIER, PREDICTOR])
def test_a_phone_never_scrolls_sideways(browser, site, model):
    browser.phone()
    browser.open(site)
    browser.see(".examples a")
    assert browser.sideways == 0
    browser.open(address(site, model, "Switzerland"))
    browser.wait_until_loaded("Switzerland")
    browser.click("button.why-button")
    browser.see(".drawing svg")
    assert browser.sideways == 0
    browser.whole_screenshot(f"phone-{model}")


# By how many pixels the text of an element reaches over its own box.
OVER = """
return [...document.querySelectorAll(arguments[0])].map((element) => {
  const text = document.createRange();
  text.selectNodeContents(element);
  return Math.round(text.getBoundingClientRect().right - element.getBoundingClientRect().right);
});
"""


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_texts_next_to_bars_are_not_clipped(browser, site, size):
    if size == "phone":
        browser.phone()
    browser.open(address(site, PREDICTOR, "Switzerland", relation="member_of"))
    browser.wait_until_loaded("Switzerland")
    assert {"✓ in the data"} < set(browser.texts(".links > li > .value"))
    browser.click("button.why-button")
    browser.see(".reasons > li > .value", "for")
    over = browser.run(OVER, ".bars > li > .value")
    assert len(over) > 10
    assert max(over) <= 0


def test_names_are_shown_as_people_write_them(browser, guarded_site):
    def named(thing):
        return browser.imported(f"{guarded_site}/assets/page.js", "m.named(a[0]).outerHTML", thing)

    browser.open(guarded_site)
    thing = {"name": "libstdc%2B%2B6", "title": "libstdc++6", "kind": "name"}
    assert named(thing) == '<bdi dir="auto" title="libstdc%2B%2B6">libstdc++6</bdi>'
    # A literal and not a node with a page.
    assert named({"name": '"42"', "title": "42", "kind": "literal"}).startswith('<q dir="auto" ')


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser, site, scheme):
    browser.colors(scheme)
    browser.open(address(site, CLASSIFIER, "Switzerland"))
    browser.wait_until_loaded("Switzerland")
    browser.click("button.why-button")
    browser.see(".drawing svg")
    browser.wait_until_loaded("Switzerland")
    # Disable transitions, so that final states are measured.
    rows = browser.until(lambda: browser.contrasts(), "text")
    browser.whole_screenshot(f"{scheme}-classifier")
    browser.open(address(site, PREDICTOR, "Switzerland"))
    browser.wait_until_loaded("Switzerland")
    browser.press("/")
    browser.press("a")
    browser.see("#found [role=option]")
    rows += browser.contrasts()
    browser.screenshot(f"{scheme}-links")
    assert len(rows) > 100
    assert [row for row in rows if row[2] < 4.5] == []


def test_every_control_has_a_name_and_all_landmarks_exist(browser, site):
    browser.open(address(site, PREDICTOR, "Switzerland"))
    browser.wait_until_loaded("Switzerland")
    tree = [node for node in browser.command("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    seen = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree]
    controls = {"button", "link", "combobox", "checkbox", "radio", "textbox"}
    assert [role for role, name in seen if role in controls and not name.strip()] == []
    roles = [role for role, _ in seen]
    assert {"banner", "main", "search", "contentinfo", "heading", "status"} <= set(roles)
    assert browser.run("return document.documentElement.lang") == "en"
    assert len(browser.all("h1")) == 1


def test_answers_out_of_order_are_dropped(browser, site):
    browser.open(site)
    browser.see(".examples a")
    # The answer to the first text is held back until the second text has its own.
    browser.run("""
        const real = window.fetch;
        window.fetch = async (address, options) => {
          const answer = await real(address, {...options, signal: undefined});
          if (String(address).includes("q=jap&")) await new Promise((resolve) => (window.release = resolve));
          return answer;
        };
    """)
    browser.press("/")
    browser.press("jap")
    browser.until(lambda: browser.run("return Boolean(window.release)"), "the first question is out")
    browser.run("const q = document.getElementById('query'); q.value = 'switz'; q.dispatchEvent(new Event('input'))")
    browser.see("#found", "Switzerland")
    browser.run("window.release()")
    browser.run("return new Promise((resolve) => setTimeout(resolve, 50))")
    assert "Japan" not in browser.see("#found").text


def test_errors_are_shown_in_the_section_where_they_occur(browser, site):
    browser.open(address(site, CLASSIFIER, "Swizerland"))
    browser.see(".trouble", "Swizerland")
    browser.click(".trouble a", "Switzerland")
    browser.wait_until_loaded("Switzerland")
    browser.offline(True)
    browser.click("button.why-button")
    browser.see(".panel .trouble", "does not answer")
    browser.offline(False)
    browser.click(".panel .trouble button", "Try again")
    browser.see(".drawing svg")
    browser.open(f"{site}/#model=nonsense")
    browser.see(".trouble", "No model called “nonsense”")


HOSTILE_DRAWING = """<svg viewBox="0 0 9 9" onload="window.broken = 1"><script>window.broken = 2</script>
<foreignObject><p xmlns="http://www.w3.org/1999/xhtml"><img src="x" onerror="window.broken = 3"/></p></foreignObject>
<a href="javascript:window.broken = 4"><text onclick="window.broken = 5" style="fill: red">text</text></a>
<image href="http://example.org/x.png"/><use href="#a"/>
<g data-node="&lt;b&gt; &amp; c" tabindex="0" role="button" aria-label="b"><circle r="2"/></g></svg>"""


def test_a_drawing_contains_no_script(browser, site):
    browser.open(site)
    browser.see(".examples a")
    drawn = browser.imported(
        f"{site}/assets/why.js",
        "(document.body.append(m.drawing(a[0], {href: (n) => '#node=' + encodeURIComponent(n)})),"
        " document.body.lastChild.outerHTML)",
        HOSTILE_DRAWING,
    )
    assert not re.search(r"script|foreign|onload|onclick|onerror|javascript|fill|image|<use|example", drawn), drawn
    assert 'href="#node=%3Cb%3E%20%26%20c"' in drawn
    assert "tabindex" not in drawn
    assert browser.run("return window.broken") is None
    broken = browser.imported(f"{site}/assets/why.js", "m.drawing('<svg><g></svg>', {})")
    assert "is broken" in broken
    # The content security policy of the page would have refused it too.
    assert all("Content Security Policy" in row for row in browser.complaints())


def test_relations_are_shown_as_readable_phrases(browser, site):
    browser.open(site)

    def evaluate(expression, *arguments):
        return browser.imported(f"{site}/assets/words.js", expression, *arguments)

    for name, out, into, question in [
        ("exports_to", "exports to", "… exports to it", "Bern exports to …?"),
        ("capital", "capital", "named as capital of", "capital of Bern: …?"),
        ("borders", "borders", "… borders it", "Bern borders …?"),
        ("worksAtProject", "works at project", "… → works at project → it", "Bern → works at project → …?"),
        ("_has_part", "has part", "… → has part → it", "Bern → has part → …?"),
        ("/film/actor/film./film/role/part", "film / part", "named as film / part of", "film / part of Bern: …?"),
        ("address", "address", "named as address of", "address of Bern: …?"),
    ]:
        relation = {"name": name, "title": name}
        expression = "[m.outgoing(a[0]), m.incoming(a[0]), m.question(a[0], 'Bern', 'object')]"
        assert evaluate(expression, relation) == [out, into, question]
    for name, question in [
        ("learns", "Who or what learns Surf?"),
        ("has_part", "Who or what has part Surf?"),
        ("part_of", "Who or what is part of Surf?"),
        ("move", "What has Surf as move?"),
    ]:
        assert evaluate("m.question(a[0], 'Surf', 'subject')", {"name": name, "title": name}) == question
    assert evaluate("a.map(m.percent)", 0, 0.00001, 0.5, 0.99999, 1) == [
        "0.0 %",
        "< 0.1 %",
        "50.0 %",
        "> 99.9 %",
        "100.0 %",
    ]


def test_a_token_is_asked_for_and_names_stay_text(browser, guarded_site):
    browser.open(guarded_site)
    browser.see("#token-dialog", "This server asks for a token")
    assert browser.focused.get_attribute("id") == "token"
    browser.press("not-the-token\n")
    browser.see("#token-dialog", "That token was not accepted")
    browser.screenshot("token")
    browser.press(f"{TOKEN}\n")
    browser.see(".about", "14 facts")
    assert browser.run("return [sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]

    browser.press("/")
    browser.press("script")
    browser.see("#found [role=option]", "<script>")
    browser.press("\n")
    browser.wait_until_loaded("<script>window.broken = 1</script>")
    browser.see("dt", "reads<i>")
    browser.see(".guess .bars", "<em>one</em>")
    browser.see(".guess", "Not calibrated: the order counts, not the number.")
    assert "sure" not in browser.see(".guess .lead").text
    browser.click("button.why-button")
    browser.see(".panel .fidelity")
    browser.whole_screenshot("hostile")
    model = browser.run("return new URLSearchParams(location.hash.slice(1)).get('model')")
    for name in HOSTILE[1:]:
        browser.run("location.hash = new URLSearchParams({model: arguments[0], node: arguments[1]})", model, name)
        browser.until(lambda name=name: name in browser.see("main header").get_attribute("textContent"), name)
        browser.until(lambda: not browser.all("[aria-busy]"), "drawn")
        assert browser.sideways == 0
    assert browser.run("return window.broken") is None
    assert browser.run("return document.querySelectorAll('main img, main script, main em, main b, main i').length") == 0


def test_a_missing_token_is_reported_on_the_page(browser, guarded_site):
    browser.open(guarded_site)
    browser.see("#token-dialog")
    browser.click("#token-cancel")
    browser.see(".trouble", "The server does not answer without its token.")
    browser.click(".trouble button", "Try again")
    browser.see("#token-dialog")
