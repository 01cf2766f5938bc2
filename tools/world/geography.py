"""Seas, rivers, lakes and basins, capitals and currencies, and who ruled whom."""

from __future__ import annotations

import re

from world.text import phrase, plain, split_list, without_notes, without_parentheses

_SEA = re.compile(
    r"\b(?:Gulf|Bay|Sea|Strait) of (?:[A-Z]\w+)(?: [A-Z]\w+)?|\b(?:[A-Z]\w+ ){1,3}(?:Ocean|Sea|Gulf|Bay|Channel"
    r"|Strait)\b|\bKattegat\b|\bSkagerrak\b"
)
_SEA_ALIASES = {"Gulf of America": "Gulf of Mexico", "Korea Bay": "Yellow Sea", "Dead Sea": ""}


def seas(location: str) -> list[str]:
    """Oceans, seas, gulfs and straits in a sentence about where a country lies.

    >>> seas(
    ...     "Northern Europe, bordering the Baltic Sea, Gulf of Bothnia, and Gulf of Finland, between Sweden and Russia"
    ... )
    ['Baltic Sea', 'Gulf of Bothnia', 'Gulf of Finland']
    """
    text = without_notes(plain(location))
    text = re.sub(r"Eastern Mediterranean(?! Sea)", "Mediterranean Sea", text)
    names = [re.sub(r"^(?:The|Central|Eastern|Western|Northern|Southern) ", "", name) for name in _SEA.findall(text)]
    names = [_SEA_ALIASES.get(name, name) for name in names]
    return list(dict.fromkeys(name for name in names if name))


def _shared_name(item: str) -> str:
    """The English name of a river or lake: the parenthesis right after the local name, if it is a name."""
    item = re.sub(r"\s*-?\s*[\d,.]+(?:-[\d,.]+)?\s*sq\.? km.*|\s+-\s+[\d,]+.*", "", item)
    english = re.match(r"^[^(]+\(([A-Z][^()]*)\)", item)
    name = english[1] if english else without_parentheses(item)
    name = re.sub(r"\b(?:river (?:source|mouth)(?: and mouth)?|\[[sm]\])", "", name)
    return re.split(r"/| or |,", name)[0].strip(" *.-")


def rivers(text: str) -> list[str]:
    """Names of rivers.

    >>> rivers(
    ...     "Donau (Danube) river source (shared with Austria, and Romania [m]) - 2,888 km; Elbe river mouth - 1,252 km"
    ... )
    ['Danube', 'Elbe']
    """
    names = [_shared_name(item) for item in without_notes(plain(text)).split(";")]
    # "Rio" goes where the rest is a name by itself: the Limpopo, but the Rio de la Plata
    names = [re.sub(r"^(?:Rio (?!de |Grande|Negro)|River )| [Rr]iver$", "", name) for name in names]
    return list(dict.fromkeys(name for name in names if re.match(r"[A-Z]\S*(?: \S+){0,3}$", name)))


def lakes(text: str) -> list[str]:
    """Names of lakes.

    >>> lakes("Huron* - 35,972 sq km; Lake Tanganyika (shared with Zambia) - 32,000 sq km<br>note - deep")
    ['Lake Huron', 'Lake Tanganyika']
    """
    names = [_shared_name(item) for item in without_notes(plain(text)).split(";")]
    names = [re.sub(r"^(?:Lago de|Lago|Lac|Ozero) ", "Lake ", name) for name in names]
    names = [_LAKES.get(name, f"Lake {name}" if name in _BARE_LAKES else name) for name in names]
    return list(dict.fromkeys(name for name in names if name))


_BARE_LAKES = {"Huron", "Superior", "Erie", "Ontario", "Belcharof", "Champlain", "Iliamna", "Okeechobee", "Saint Clair"}
# One lake, two shores, two names.
_LAKES = {
    "Abhe Bad": "Lake Abbe",
    "Abhe Bid Hayk": "Lake Abbe",
    "Aral Sea - largely dried up": "Aral Sea",
    "Lake Buenos Aires": "Lake General Carrera",
    "Lake San Martin": "Lake O'Higgins",
    "Quinghai Hu": "Qinghai Hu",
    "Red": "Red Lake",
    "Stettiner Haff": "Szczecin Lagoon",
    "Zalew Szczecinski": "Szczecin Lagoon",
}


def basins(text: str) -> list[str]:
    """Names of watersheds or aquifers.

    >>> basins("Rhine-Maas (198,735 sq km), <em>(Black Sea)</em> Danube (795,656 sq km)")
    ['Rhine-Maas', 'Danube']
    """
    names = [phrase(item) for item in split_list(without_notes(plain(text)))]
    names = [re.sub(r"(?: Aquifer)?(?: Basin| System)?$", "", name) for name in names]
    return list(dict.fromkeys(_BASINS.get(name, name) for name in names if name))


_BASINS = {
    "Lake Balkash": "Lake Balkhash",
    "Lullemeden-Irhazer": "Iullemeden-Irhazer",
    "Taodeni-Tanzerouft": "Taoudeni-Tanezrouft",
}


def capitals(text: str) -> list[str]:
    """Capitals, several where a country has several.

    >>> capitals("Pretoria (administrative capital); Cape Town (legislative capital)"), capitals("Washington, D.C.")
    (['Pretoria', 'Cape Town'], ['Washington'])
    """
    text = without_notes(plain(text)).replace(", D.C.", "")
    names = []
    for item in split_list(text):
        name = re.sub(r" is the administrative capital| in Romanian", "", without_parentheses(item)).strip(" .;")
        if name and name[0].isupper() and len(name.split()) <= 4:
            names.append(name)
    return names


_CURRENCY = {
    "Communaute Financiere Africaine franc": "West African CFA franc",
    "Comptoirs Francais du Pacifique franc": "CFP franc",
    "Cooperation Financiere en Afrique Centrale franc": "Central African CFA franc",
    "Aruban guilders/florin": "Aruban florin",
    "Renminbi yuan": "yuan",
    "konvertibilna marka": "convertible mark",
    "togrog/tugrik": "tugrik",
    "new Israeli shekel": "Israeli shekel",
    "Tuvaluan dollars or Australian dollar": "Australian dollar",
    "lei": "Romanian leu",
    "nuevo sol": "sol",
    "Qatari rial": "Qatari riyal",
}
_PLURALS = {
    "kroner": "krone",
    "kronor": "krona",
    "kronur": "krona",
    "leva": "lev",
    "koruny": "koruna",
    "zlotych": "zloty",
    "leke": "lek",
    "meticais": "metical",
    "maloti": "loti",
    "emalangeni": "lilangeni",
    "quetzales": "quetzal",
    "colones": "colon",
}


def currency(text: str) -> str:
    """The currency in the singular, from the factbook's exchange rate.

    >>> currency("Swiss francs (CHF) per US dollar -"), currency("zlotych (PLN) per US dollar -")
    ('Swiss franc', 'zloty')
    """
    name = without_parentheses(plain(text))
    if match := re.search(r"uses the (\w+(?: \w+)?)|the (US dollar) (?:is used|became)", name):
        return match[1] or match[2]
    if "see entry" in name:
        return ""
    name = re.sub(r"\s*per US dollar.*", "", name).strip(" -")
    words = name.split()
    if not words or len(words) > 6:
        return ""
    last = _PLURALS.get(words[-1], words[-1])
    last = last[:-1] if last.endswith("s") else last
    name = " ".join([*words[:-1], last])
    if name == "Moldovan lei":
        return "Moldovan leu"
    return _CURRENCY.get(name, name)


# Who let a country go, as the factbook phrases it; states that are no more are nodes of their own.
_RULERS = {
    r"\bUK\b|British|Great Britain": "United Kingdom",
    r"\bFrance|French": "France",
    r"Portug": "Portugal",
    r"\bSpain": "Spain",
    r"Belgi": "Belgium",
    r"Netherlands": "Netherlands",
    r"Soviet": "Soviet Union",
    r"Ottoman": "Ottoman Empire",
    r"Yugoslavia": "Yugoslavia",
    r"\bUS\b": "United States",
    r"Australia": "Australia",
    r"New Zealand": "New Zealand",
    r"South Africa": "South Africa",
    r"Italian": "Italy",
    r"Denmark": "Denmark",
    r"Japan": "Japan",
    r"China": "China",
    r"Malaysia": "Malaysia",
    r"Indonesia": "Indonesia",
    r"Ethiopia": "Ethiopia",
    r"(?<!South )Sudan": "Sudan",
    r"Egypt": "Egypt",
    r"Haiti": "Haiti",
    r"Colombia": "Colombia",
    r"Brazil": "Brazil",
    r"Pakistan": "Pakistan",
    r"\bfrom (?:the )?Russia": "Russia",
    r"\bSerbia(?! and)": "Serbia",
    r"Holy Roman Empire": "Holy Roman Empire",
    r"State Union": "Serbia and Montenegro",
}
_OWNERS = {
    r"\bUK\b|British": "United Kingdom",
    r"France": "France",
    r"\bUS\b": "United States",
    r"Australia": "Australia",
    r"New Zealand": "New Zealand",
    r"Netherlands": "Netherlands",
    r"Denmark": "Denmark",
    r"Norway": "Norway",
    r"China": "China",
}


def independence_from(text: str, country: str) -> list[str]:
    """The states a country became independent from, read from the phrases that begin with "from".

    >>> independence_from(
    ...     "27 November 1912 (from the Ottoman Empire); 1 July 1962 (from UN trusteeship under Belgian rule)", "X"
    ... )
    ['Belgium', 'Ottoman Empire']
    """
    clauses = " | ".join(re.findall(r"\bfrom (?!\d)[^;)(]*", without_notes(plain(text))))
    return [ruler for pattern, ruler in _RULERS.items() if re.search(pattern, clauses) and ruler != country]


def dependency_of(text: str) -> str | None:
    """The state a territory belongs to.

    >>> dependency_of("overseas territory of the UK; also claimed by Argentina")
    'United Kingdom'
    """
    found = [(match.start(), owner) for pattern, owner in _OWNERS.items() if (match := re.search(pattern, plain(text)))]
    return min(found)[1] if found else None
