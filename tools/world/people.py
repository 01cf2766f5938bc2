"""Languages and peoples: proper names, always with their kind, since most words are both."""

from __future__ import annotations

import re

from world.text import phrase, plain, split_list, without_notes, without_parentheses

LANGUAGE_ALIASES = {
    "Afghan Persian or Dari": "Dari",
    "Azeri": "Azerbaijani",
    "Bahasa Indonesia": "Indonesian",
    "Bahasa Malaysia": "Malay",
    "Bahasa Melayu": "Malay",
    "Baluchi": "Balochi",
    "Bangla": "Bengali",
    "Berber": "Tamazight",
    "Bokmal Norwegian": "Norwegian",
    "Castilian": "Spanish",
    "Castilian Spanish": "Spanish",
    "Chinese dialects": "Chinese",
    "Chinese languages": "Chinese",
    "Farsi": "Persian",
    "Fijian Hindi": "Fiji Hindi",
    "Filipino": "Tagalog",
    "Flemish": "Dutch",
    "French Lingala": "Lingala",
    "Fufulde": "Fulani",
    "Fula": "Fulani",
    "Fulfulde": "Fulani",
    "Khalkha Mongol": "Mongolian",
    "Kirghiz": "Kyrgyz",
    "Kiribati": "Gilbertese",
    "Kiswahili": "Swahili",
    "Kiswahili or Swahili": "Swahili",
    "Maithali": "Maithili",
    "Mandarin Chinese": "Mandarin",
    "Minnan": "Min Nan",
    "Moldovan": "Romanian",
    "Northern Chinese": "Mandarin",
    "Nynorsk Norwegian": "Norwegian",
    "Panjabi": "Punjabi",
    "Pashtu": "Pashto",
    "Persian Farsi": "Persian",
    "Peuhl": "Fulani",
    "Portuguese-based Creole": "Crioulo",
    "Pulaar": "Fulani",
    "Pular": "Fulani",
    "Putonghua": "Mandarin",
    "Roma": "Romani",
    "Romany": "Romani",
    "Senoufo": "Senufo",
    "Serbo-Croat": "Serbo-Croatian",
    "Sesotho": "Sotho",
    "Sesotho or Southern Sotho": "Sotho",
    "Setswana": "Tswana",
    "Setswana or Tswana": "Tswana",
    "Slovene": "Slovenian",
    "Standard Chinese": "Mandarin",
    "Standard Chinese or Mandarin": "Mandarin",
    "Tamacheq": "Tamasheq",
    "Tamashek": "Tamasheq",
    "Tigrigna": "Tigrinya",
    "Turkmani": "Turkmen",
    "Uzbeki": "Uzbek",
    "Xitsonga or Tsonga": "Tsonga",
    "Yue": "Cantonese",
    "isiXhosa": "Xhosa",
    "isiXhosa or Xhosa": "Xhosa",
    "isiZulu": "Zulu",
    "isiZulu or Zulu": "Zulu",
    "siSwati": "Swazi",
    "siSwati or Swati": "Swazi",
}
_NOT_A_LANGUAGE = re.compile(
    r"\b(?:dialects?|languages?|indigenous|tribal|local|vernaculars?|family|speaking|foreign|spoken|more than"
    r"|sign|native|patois|minority"
    r"|minorities|widely|understood|commonly|secondary|most|creoles? of|African|Amerindian|European|Asian"
    r"|Pacific|Polynesian|Melanesian|Micronesian"
    r"|is|are|none|multiple|Indo-\w+|Turkic|Bantu|Sudanic|Nilo-\w+|Nilotic|Austronesian)\b",
    re.IGNORECASE,
)

PEOPLE_ALIASES = {
    "African/Black": "African descent",
    "Afro-descendant": "African descent",
    "Amerindian": "Indigenous",
    "Arabs": "Arab",
    "Asians": "Asian",
    "Azerbaijani": "Azeri",
    "Baloch": "Baluchi",
    "Baluch": "Baluchi",
    "Bangladeshis": "Bangladeshi",
    "Bantus": "Bantu",
    "Berber": "Amazigh",
    "Black African": "Black",
    "Black or African American": "Black",
    "Black or African descent": "African descent",
    "Black/African American": "Black",
    "Bosnian": "Bosniak",
    "Caucasian": "White",
    "Caucasian/White": "White",
    "Chinese descent": "Chinese",
    "Croatian": "Croat",
    "East Indian/Indian": "East Indian",
    "European descent": "European",
    "Europeans": "European",
    "Fula": "Fulani",
    "Fulani/Peulh": "Fulani",
    "Fulbe": "Fulani",
    "Fullah": "Fulani",
    "Gypsy": "Romani",
    "Haiti": "Haitian",
    "Han Chinese": "Chinese",
    "Hispanic/Spanish": "Hispanic",
    "Hungarians": "Hungarian",
    "India": "Indian",
    "Indians": "Indian",
    "Ireland": "Irish",
    "Jamaica": "Jamaican",
    "Jews": "Jewish",
    "Kazak": "Kazakh",
    "Kurdish": "Kurd",
    "Mandinga": "Mandinka",
    "Mong": "Hmong",
    "Netherlands": "Dutch",
    "Peuhl": "Fulani",
    "Peul": "Fulani",
    "Poland": "Polish",
    "Poles": "Polish",
    "Portugal": "Portuguese",
    "Pulaar": "Fulani",
    "Qirghiz": "Kyrgyz",
    "Roma": "Romani",
    "Romania": "Romanian",
    "Russians": "Russian",
    "Serbian": "Serb",
    "Sereer": "Serer",
    "Slovenian": "Slovene",
    "Sonrai": "Songhai",
    "Suriname": "Surinamese",
    "Tartar": "Tatar",
    "Thais": "Thai",
    "Turk": "Turkish",
    "Turkman": "Turkmen",
    "UK": "British",
    "US": "American",
    "Uighur": "Uyghur",
    "Uyghurs": "Uyghur",
    "Viet": "Vietnamese",
    "Yezidi": "Yazidi",
}
_NOT_A_PEOPLE = re.compile(
    r"\b(?:none|population|citizens?|ethnic(?:ity|ities| groups?| minorities)|races?|non-?\w*|responses?"
    r"|affiliation|more|two|born|stateless|data"
    r"|country|countries|homogeneous|descendants|minority|minorities|groups?|tribes?|persons?|people|smaller"
    r"|lesser|are|is|of|with|there|than|small|ancestry|mixtures?"
    r"|mixed|part|nationals?|immigrants?|expatriates?|inhabitants|residents|personnel|settlers|island|census"
    r"|statistical|Islanders?|admixtures?|cited|Constitution|dozens)\b",
    re.IGNORECASE,
)


def languages(text: str) -> list[tuple[str, bool]]:
    """(language, whether it is official) for each language named outside parentheses.

    >>> languages("German (or Swiss German) (official) 62.1%, English 5.7%, other 7.9% (2019 est.)")
    [('German', True), ('English', False)]
    >>> languages("Spanish (official) and Guarani (official) 46.3%, only Guarani 34%")
    [('Spanish', True), ('Guarani', True)]
    """
    found: dict[str, bool] = {}
    for item in split_list(without_notes(plain(text))):
        for part in re.split(r" and (?![^(]*\))", item):
            official = bool(re.search(r"\((?:[^()]*[;, ])?official(?! in | minority)\b", part))
            name = re.sub(r"^(?:only|some|standard)\s+|\s+(?:only|primary)$", "", phrase(part))
            name = LANGUAGE_ALIASES.get(name, name)
            name = name.split("/")[0].split(" or ")[0].strip()
            name = LANGUAGE_ALIASES.get(name, name)
            if name and name[0].isupper() and not _NOT_A_LANGUAGE.search(name) and len(name.split()) <= 3:
                found[name] = found.get(name, False) or official
    return list(found.items())


def peoples(text: str) -> list[str]:
    """Ethnic groups named outside parentheses.

    >>> peoples("Albanians 92.9%, Turk 1.1%, Zarma/Songhai 2%, non-Kosovar 1%, other/unspecified 0.2% (2011 est.)")
    ['Albanian', 'Turkish', 'Zarma', 'Songhai']
    """
    found = []
    for item in split_list(without_notes(plain(text))):
        name = phrase(item)
        name = re.sub(r"^(?:ethnic|predominantly|mainly|mostly|overwhelmingly|chiefly|primarily)\s+", "", name)
        name = PEOPLE_ALIASES.get(name, name)
        for part in re.split(r"/| and | or ", without_parentheses(name)):
            part = PEOPLE_ALIASES.get(part.strip(), part.strip())
            if re.search(r"(?:an|er|b|k|t|o|i)s$", part):  # "Albanians", "Serbs", "Kavangos"
                part = PEOPLE_ALIASES.get(part[:-1], part[:-1])
            if part and part[0].isupper() and not _NOT_A_PEOPLE.search(part) and len(part.split()) <= 3:
                found.append(part)
    return list(dict.fromkeys(found))
