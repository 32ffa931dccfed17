"""Recall passages: facts that a text states once and asks for thousands of tokens later.

The wording is fixed, `varve eval recall` uses the same:

    Remember that the number of the silver tower is 48213.
    What is the number of the silver tower? The number of the silver tower is 48213.

A fact stands between two sentences of running text; a question is a paragraph of its own.
"""

import random

ADJECTIVES = """amber ancient black blue brass bright broken bronze brown burning clear cold copper crimson
crooked dark deep distant dusty eastern empty fallen faded famous frozen gentle gilded glass golden grand
gray great green heavy hidden high hollow holy humble iron ivory jade large little lonely long lost low
lucky marble misty mighty narrow new noble northern old open painted pale patient plain proud quiet red
rich rolling rough round royal rusty sacred scarlet secret sharp shining silent silver simple small
smooth solemn southern square steep still stone strange strong sunken sweet swift tall thin tiny upper
velvet warm western white wide wild winding windy wise wooden yellow young""".split()

NOUNS = """abbey anchor angel apple arch arrow barn basket bay beacon bear bell bird boat book bottle box
bridge brook butterfly cabin candle captain carriage castle cat cave chain chair chapel chest church city
clock cloud coach cottage cup dance desert dog door dragon drum eagle engine farm feather field fire flag
flower flute forest fort fountain fox garden gate ghost giant harbor hat hawk hill horse house inn island
jewel key king kitchen knight ladder lake lamp lantern library lighthouse lion market mask meadow mill
mirror moon mountain museum needle oak ocean orchard owl palace path pearl pillar pipe plate pond prince
prison queen rabbit raven ring river road rock room rose school sea shadow shepherd shield ship shop
shore smith soldier spring square stable stair star station statue stone storm stream street sword table
temple tent theatre throne tower town train tree tunnel valley village wagon wall watch well wheel
window wolf wood""".split()


def number(rng: random.Random) -> str:
    return str(rng.randrange(10000, 100000))


def thing(rng: random.Random, words: list[str]) -> tuple[str, str]:
    """What a fact is about: mostly from the lists, sometimes any words of the corpus."""
    if words and rng.random() < 0.25:
        return rng.choice(words), rng.choice(words)
    return rng.choice(ADJECTIVES), rng.choice(NOUNS)


def fact(name: tuple[str, str], value: str) -> str:
    return f" Remember that the number of the {name[0]} {name[1]} is {value}."


def question(name: tuple[str, str]) -> str:
    """Ends before the answer: " 48213.", and a paragraph break."""
    of = f"number of the {name[0]} {name[1]}"
    return f"\n\nWhat is the {of}? The {of} is"


def answer(value: str) -> str:
    return f" {value}."
