"""Resources, crops, industries and commodities share one set of lower-case nodes, so mined gold is exported gold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from world.text import phrases, plain

# How much of a thing there is does not change what it is.
_QUANTITY = re.compile(
    r"^(?:(?:some|small|limited|minor|major|possible|possibly|potential|likely|abundant|extensive|unexploited"
    r"|undetermined"
    r"|large|largely|locally exploitable|low-grade|poor quality|offshore|known|small-scale|light|commercial)\s+)+",
)
_CONTAINER = re.compile(
    r"^(?:deposits?|reserves?|quantities|amounts?|production|processing|assembly|manufactur(?:e|ing)|exports?"
    r"|large reserves) of\s+"
)
_TAIL = re.compile(r"\s+(?:deposits?|reserves?|potential|resources)$")

SYNONYMS = {
    "apparel": "clothing",
    "automotive parts": "vehicle parts and accessories",
    "parts for motor vehicles": "vehicle parts and accessories",
    "chemical products": "chemicals",
    "chemicals and petrochemicals": "petrochemicals",
    "consumer products": "consumer goods",
    "dairy": "dairy products",
    "manufacture": "manufacturing",
    "metal-cutting machine tools": "machine tools",
    "petroleum and petroleum products": "petroleum products",
    "phosphorite": "phosphates",
    "phosphorites": "phosphates",
    "processed food and beverages": "food and beverages",
    "processed foods and beverages": "food and beverages",
    "ship repair and refurbishment": "ship repair",
    "sulphur": "sulfur",
    "automobiles": "cars",
    "automobile": "cars",
    "barites": "barite",
    "brown coal": "lignite",
    "chrome": "chromium",
    "chrome ore": "chromium ore",
    "corn": "maize",
    "crude oil": "crude petroleum",
    "fisheries": "fishing",
    "fluorite": "fluorspar",
    "food and beverage": "food and beverages",
    "foods": "food",
    "foodstuffs": "food",
    "food products": "food",
    "garments": "clothing",
    "gas": "natural gas",
    "gems": "gemstones",
    "gravel and sand": "sand and gravel",
    "ground nuts": "groundnuts",
    "hydroelectric": "hydropower",
    "hydroelectric power": "hydropower",
    "hydroelectricity": "hydropower",
    "information technology services": "information technology",
    "iron and steel products": "iron and steel",
    "light industries": "light industry",
    "lumber": "timber",
    "manioc": "cassava",
    "oil": "petroleum",
    "oil refining": "petroleum refining",
    "pawpaws": "papayas",
    "peanuts": "groundnuts",
    "petrochemical": "petrochemicals",
    "pharmaceutical": "pharmaceuticals",
    "phosphate rock": "phosphates",
    "processed food": "food processing",
    "processed foods": "food processing",
    "pyrites": "pyrite",
    "rare earth metals": "rare earth elements",
    "rare earth oxides": "rare earth elements",
    "ready-made garments": "clothing",
    "shoes": "footwear",
    "ship building": "shipbuilding",
    "ship repairing": "ship repair",
    "textile": "textiles",
    "textiles and apparel": "textiles and clothing",
    "clothing and textiles": "textiles and clothing",
    "textiles and garments": "textiles and clothing",
    "squash and pumpkins": "pumpkins and squash",
    "transport equipment": "transportation equipment",
    "tropical fruit": "tropical fruits",
    "fruit": "fruits",
    "wood and wood products": "wood products",
    "medical cultures and vaccines": "vaccines",
    "building materials": "construction materials",
    "automobile assembly": "motor vehicle assembly",
    "hides and skins": "hides",
}
# Prose about a country rather than a thing it has.
_PROSE = re.compile(
    r"\b(?:foster|fosters|fostering|which|have|has|is|are|was|allow|world|world's|found|banned|whole range|wide"
    r"|variety|other|others"
    r"|largest|producer|including|includes|such as|state|potential for|export|few|strategic|climate)\b"
)


def good(name: str) -> str:
    """One resource, crop, industry or commodity in its plain form, or an empty string.

    >>> (
    ...     good("small deposits of coal"),
    ...     good("Mangoes/guavas"),
    ...     good("beaches foster tourism"),
    ...     good("hydropower potential"),
    ... )
    ('coal', 'mangoes and guavas', '', 'hydropower')
    """
    name = name.lower().replace("/", " and ")
    name = re.sub(r"\s+-\s+.*", "", name)
    name = _CONTAINER.sub("", _QUANTITY.sub("", name))
    name = _TAIL.sub("", _QUANTITY.sub("", name)).strip()
    name = SYNONYMS.get(name, name)
    if (
        _PROSE.search(name)
        or len(name.split()) > 4
        or name in ("light", "industry", "industries", "products", "services")
    ):
        return ""
    return name


def goods_in(text: str) -> list[str]:
    """The goods in a prose list.

    >>> goods_in("Oil and gas deposits, timber, NA, some copper (2023)")
    ['petroleum', 'natural gas', 'timber', 'copper']
    """
    text = re.sub(
        r"\b(?:crude )?(?:oil|petroleum) and (?:natural )?gas\b", "petroleum, natural gas", plain(text), flags=re.I
    )
    return [g for p in phrases(text) if (g := good(p))]


def _singular(name: str) -> str:
    """A key that is the same for singular and plural; not a word to show."""
    if name.endswith("ies"):
        return name[:-3] + "y"
    if name.endswith("oes"):
        return name[:-2]
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def merge_spellings(names: Iterable[str]) -> dict[str, str]:
    """{name: name to use}: of singular and plural the more frequent, of a compound nothing.

    >>> merge_spellings(["phosphate", "phosphates", "phosphates"])["phosphate"]
    'phosphates'
    """
    counts = Counter(names)
    best: dict[str, str] = {}
    for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        best.setdefault(_singular(name), name)
    return {name: best[_singular(name)] for name in counts}


def settle(mentions: list[tuple[str, str, str]], at_least: int = 2) -> list[tuple[str, str, str]]:
    """Triples with a good as object, spelled one way, without goods that are mentioned only once.

    A rare compound ("phosphate and gold mining") is cut at "and", and its parts are kept where they are goods
    that others have as well.
    """
    spelled = merge_spellings(g for _, _, g in mentions)
    counts = Counter(spelled[g] for _, _, g in mentions)
    facts = []
    for country, relation, name in mentions:
        name = spelled[name]
        if counts[name] >= at_least:
            facts.append((country, relation, name))
            continue
        for part in re.split(r" and ", name):
            part = good(part)
            part = spelled.get(part, part)
            if counts[part] >= at_least:
                facts.append((country, relation, part))
    return list(dict.fromkeys(facts))
