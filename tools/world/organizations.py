"""International organizations and environmental agreements: the factbook's abbreviations, spelled out."""

from __future__ import annotations

import re

from world.text import phrase, plain, split_list, without_notes, without_parentheses

NAMES = {
    "ABEDA": "Arab Bank for Economic Development in Africa",
    "ACP": "Organization of African, Caribbean and Pacific States",
    "ACS": "Association of Caribbean States",
    "ADB": "Asian Development Bank",
    "AFESD": "Arab Fund for Economic and Social Development",
    "AIIB": "Asian Infrastructure Investment Bank",
    "AMF": "Arab Monetary Fund",
    "AMU": "Arab Maghreb Union",
    "ANZUS": "ANZUS",
    "AOSIS": "Alliance of Small Island States",
    "APEC": "Asia-Pacific Economic Cooperation",
    "ARF": "ASEAN Regional Forum",
    "AU": "African Union",
    "AfDB": "African Development Bank",
    "Australian Group": "Australia Group",
    "BA": "Baltic Assembly",
    "BCIE": "Central American Bank for Economic Integration",
    "BDEAC": "Central African States Development Bank",
    "BIS": "Bank for International Settlements",
    "BSEC": "Black Sea Economic Cooperation",
    "C": "Commonwealth of Nations",
    "CABEI": "Central American Bank for Economic Integration",
    "CACM": "Central American Common Market",
    "CAEU": "Council of Arab Economic Unity",
    "CAN": "Andean Community",
    "CBSS": "Council of the Baltic Sea States",
    "CD": "Conference on Disarmament",
    "CDB": "Caribbean Development Bank",
    "CE": "Council of Europe",
    "CEI": "Central European Initiative",
    "CELAC": "Community of Latin American and Caribbean States",
    "CEMAC": "Central African Economic and Monetary Community",
    "CEPGL": "Economic Community of the Great Lakes Countries",
    "CICA": "Conference on Interaction and Confidence-Building in Asia",
    "CIS": "Commonwealth of Independent States",
    "CP": "Colombo Plan",
    "CPLP": "Community of Portuguese Language Countries",
    "CSTO": "Collective Security Treaty Organization",
    "Caricom": "Caribbean Community",
    "D-8": "Developing Eight",
    "EAC": "East African Community",
    "EADB": "East African Development Bank",
    "EAEU": "Eurasian Economic Union",
    "EAEC": "Eurasian Economic Union",
    "EEU": "Eurasian Economic Union",
    "EAPC": "Euro-Atlantic Partnership Council",
    "EAS": "East Asia Summit",
    "EBRD": "European Bank for Reconstruction and Development",
    "ECB": "European Central Bank",
    "ECCU": "Eastern Caribbean Currency Union",
    "ECO": "Economic Cooperation Organization",
    "EFTA": "European Free Trade Association",
    "EIB": "European Investment Bank",
    "EITI": "Extractive Industries Transparency Initiative",
    "EMU": "Economic and Monetary Union",
    "ESA": "European Space Agency",
    "EU": "European Union",
    "Entente": "Council of the Entente",
    "FATF": "Financial Action Task Force",
    "FZ": "Franc Zone",
    "GCC": "Gulf Cooperation Council",
    "GCTU": "General Confederation of Trade Unions",
    "GUAM": "GUAM Organization for Democracy and Economic Development",
    "IADB": "Inter-American Development Bank",
    "IAEA": "International Atomic Energy Agency",
    "IBRD": "World Bank",
    "ICAO": "International Civil Aviation Organization",
    "ICC": "International Chamber of Commerce",
    "ICCT": "International Criminal Court",
    "ICCt": "International Criminal Court",
    "ICRM": "International Red Cross and Red Crescent Movement",
    "IDA": "International Development Association",
    "IDB": "Islamic Development Bank",
    "IEA": "International Energy Agency",
    "IFAD": "International Fund for Agricultural Development",
    "IFC": "International Finance Corporation",
    "IFRCS": "International Federation of Red Cross and Red Crescent Societies",
    "IGAD": "Intergovernmental Authority on Development",
    "IHO": "International Hydrographic Organization",
    "ILO": "International Labor Organization",
    "IMF": "International Monetary Fund",
    "IMO": "International Maritime Organization",
    "IMSO": "International Mobile Satellite Organization",
    "IOC": "International Olympic Committee",
    "IOM": "International Organization for Migration",
    "IPU": "Inter-Parliamentary Union",
    "ISO": "International Organization for Standardization",
    "ITSO": "International Telecommunications Satellite Organization",
    "ITU": "International Telecommunication Union",
    "ITUC": "International Trade Union Confederation",
    "InOC": "Indian Ocean Commission",
    "LAES": "Latin American Economic System",
    "LAIA": "Latin American Integration Association",
    "LAS": "Arab League",
    "LCBC": "Lake Chad Basin Commission",
    "MIGA": "Multilateral Investment Guarantee Agency",
    "NAM": "Non-Aligned Movement",
    "NC": "Nordic Council",
    "NEA": "Nuclear Energy Agency",
    "NIB": "Nordic Investment Bank",
    "NSG": "Nuclear Suppliers Group",
    "OAPEC": "Organization of Arab Petroleum Exporting Countries",
    "OAS": "Organization of American States",
    "OECD": "OECD",
    "OECS": "Organization of Eastern Caribbean States",
    "OIC": "Organization of Islamic Cooperation",
    "OIF": "Francophonie",
    "OPANAL": "Agency for the Prohibition of Nuclear Weapons in Latin America",
    "OPCW": "Organization for the Prohibition of Chemical Weapons",
    "OSCE": "Organization for Security and Cooperation in Europe",
    "PCA": "Permanent Court of Arbitration",
    "PFP": "Partnership for Peace",
    "PIF": "Pacific Islands Forum",
    "PROSUR": "Forum for the Progress of South America",
    "SAARC": "South Asian Association for Regional Cooperation",
    "SACEP": "South Asia Cooperative Environment Program",
    "SACU": "Southern African Customs Union",
    "SADC": "Southern African Development Community",
    "SCO": "Shanghai Cooperation Organization",
    "SELEC": "Southeast European Law Enforcement Center",
    "SICA": "Central American Integration System",
    "SPC": "Pacific Community",
    "Schengen Convention": "Schengen Area",
    "UN": "United Nations",
    "UN Security Council": "UN Security Council",
    "UNASUR": "Union of South American Nations",
    "UNSC": "UN Security Council",
    "UPU": "Universal Postal Union",
    "WADB": "West African Development Bank",
    "WAEMU": "West African Economic and Monetary Union",
    "WBG": "World Bank",
    "WCO": "World Customs Organization",
    "WFTU": "World Federation of Trade Unions",
    "WHO": "World Health Organization",
    "WIPO": "World Intellectual Property Organization",
    "WMO": "World Meteorological Organization",
    "WTO": "World Trade Organization",
    "World Bank Group": "World Bank",
    "ZC": "Zangger Committee",
}
# Peace missions stand in the same list, but a country sends troops to them and is no member.
MISSIONS = {
    "ATMIS",
    "MINURCAT",
    "MINURSO",
    "MINUSCA",
    "MINUSMA",
    "MINUSTAH",
    "MNJTF",
    "MONUSCO",
    "UNAMA",
    "UNAMID",
    "UNDOF",
    "UNFICYP",
    "UNIFIL",
    "UNISFA",
    "UNMHA",
    "UNMIL",
    "UNMIS",
    "UNMISS",
    "UNMIT",
    "UNMOGIP",
    "UNOCI",
    "UNSMIL",
    "UNSOM",
    "UNSOS",
    "UNTSO",
    "UNVIM",
}
_LOOSE = re.compile(
    r"observer|partner|associate|candidate|dialogue|cooperating|engagement|subbureau|pending|accession", re.IGNORECASE
)
_NOT_NOW = re.compile(r"suspended|signatory|excluded|has not", re.IGNORECASE)

AGREEMENTS = {
    "Antarctic Treaty": "Antarctic Treaty",
    "Antarctic-Environmental Protection": "Antarctic Environmental Protocol",
    "Antarctic-Marine Living Resources": "Antarctic Marine Living Resources Convention",
    "Antarctic Seals": "Antarctic Seals Convention",
    "Biodiversity": "Convention on Biological Diversity",
    "Climate Change": "UN Climate Change Convention",
    "Climate Change-Kyoto Protocol": "Kyoto Protocol",
    "Climate Change-Paris Agreement": "Paris Agreement",
    "Comprehensive Nuclear Test Ban": "Comprehensive Nuclear Test Ban Treaty",
    "Desertification": "Convention to Combat Desertification",
    "Endangered Species": "Convention on Trade in Endangered Species",
    "Environmental Modification": "Environmental Modification Convention",
    "Hazardous Wastes": "Basel Convention on Hazardous Wastes",
    "Law of the Sea": "Law of the Sea Convention",
    "Marine Dumping-London Convention": "London Convention on Marine Dumping",
    "Marine Dumping-London Protocol": "London Protocol on Marine Dumping",
    "Marine Life Conservation": "Marine Life Conservation Convention",
    "Nuclear Test Ban": "Partial Nuclear Test Ban Treaty",
    "Ozone Layer Protection": "Montreal Protocol on the Ozone Layer",
    "Ship Pollution": "Convention on Ship Pollution",
    "Wetlands": "Ramsar Convention on Wetlands",
    "Whaling": "Convention on Whaling",
    "Air Pollution": "Convention on Transboundary Air Pollution",
}


def memberships(text: str) -> list[tuple[str, bool]]:
    """(organization, whether the membership is full) for each organization in the list.

    >>> memberships("UN, OAS (observer), AU (suspended), C, ITUC (NGOs)")
    [('United Nations', True), ('Organization of American States', False), ('Commonwealth of Nations', True), \
('International Trade Union Confederation', True)]
    """
    found: dict[str, bool] = {}
    for item in split_list(without_notes(plain(text))):
        item = re.sub(r"^.*\bdo not participate:", "", item).strip()
        name = re.sub(r"^G- ", "G-", without_parentheses(item)).strip(" .*")
        if not name or _NOT_NOW.search(item) or name.lower() == "none" or len(name.split()) > 4:
            continue
        name = NAMES.get(name, name)
        found[name] = found.get(name, False) or not _LOOSE.search(item)
    return list(found.items())


def agreements(text: str) -> list[str]:
    """Names of environmental agreements; a topic without a name of its own is described by its subject.

    >>> agreements("Biodiversity, Air Pollution-Sulphur 85, none of the selected agreements")
    ['Convention on Biological Diversity', 'Air Pollution Protocol on Sulphur of 1985']
    """
    found = []
    for item in split_list(without_notes(plain(text))):
        item = re.sub(r"\s*-\s*", "-", without_parentheses(item)).strip(" .")
        if item.lower().startswith("tropical timber"):
            found.append("International Tropical Timber Agreement")
        elif match := re.match(r"Air Pollution-(.+?)(?: (\d\d))?$", item):
            topic = re.sub(r" Protocol$", "", match[1]).replace("Multi-effect", "Multiple Effects")
            found.append(f"Air Pollution Protocol on {topic}" + (f" of 19{match[2]}" if match[2] else ""))
        elif item in AGREEMENTS:
            found.append(AGREEMENTS[item])
    return list(dict.fromkeys(name for name in found if phrase(name) or name[-1].isdigit()))
