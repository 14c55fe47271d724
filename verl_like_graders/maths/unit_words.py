"""Units by name and symbol, with their dimensions and size.

A measure is given in base units, such as ``{"m": 1, "s": -1}`` for a speed. Names are in lower case, symbols in their
usual case. Symbols that are more often a name or a product of letters than a unit (MN, AB, cd) are left out.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple


class Measure(NamedTuple):
    """The size of a unit. ``dimensions`` are base units with their powers, sorted."""

    dimensions: tuple[tuple[str, int], ...]
    scale: Fraction = Fraction(1)


_PREFIXES = {
    "p": ("pico", Fraction(1, 10**12)),
    "n": ("nano", Fraction(1, 10**9)),
    "u": ("micro", Fraction(1, 10**6)),
    "m": ("milli", Fraction(1, 1000)),
    "c": ("centi", Fraction(1, 100)),
    "d": ("deci", Fraction(1, 10)),
    "da": ("deca", Fraction(10)),
    "h": ("hecto", Fraction(100)),
    "k": ("kilo", Fraction(1000)),
    "M": ("mega", Fraction(10**6)),
    "G": ("giga", Fraction(10**9)),
    "T": ("tera", Fraction(10**12)),
}
# Columns: symbol, its prefixes, names (which take every prefix), scale and base units.
_SI = """
m    n u m c d k  metre meter         1 m
g    u m k        gram gramme         1 g
s    n u m        second              1 s
L    u m c d      litre liter         1/1000 m^3
l    m c d        -                   1/1000 m^3
A    u m k        ampere amp          1 A
K    m            kelvin              1 K
mol  m k          mole                1 mol
N    m k          newton              1000 g m s^-2
J    m k M G      joule               1000 g m^2 s^-2
W    m k M G T    watt                1000 g m^2 s^-3
Wh   m k M G T    watt-hour watthour  3600000 g m^2 s^-2
V    u m k M      volt                1000 g m^2 s^-3 A^-1
ohm  m k M        ohm                 1000 g m^2 s^-3 A^-2
Pa   h k M G      pascal              1000 g m^-1 s^-2
bar  m            bar                 100000000 g m^-1 s^-2
Hz   k M G T      hertz               1 s^-1
C    u m          coulomb             1 A s
F    p n u m      farad               1/1000 g^-1 m^-2 s^4 A^2
T    u m          tesla               1000 g s^-2 A^-1
H    u m          henry               1000 g m^2 s^-2 A^-2
Wb   m            weber               1000 g m^2 s^-2 A^-1
eV   m k M G T    electronvolt        1 eV
cal  k            calorie             1 cal
B    k M G T      byte                8 bit
bit  k M G T      bit                 1 bit
rad  m            radian              1 rad
Bq   k M G        becquerel           1 Bq
Sv   u m          sievert             1 Sv
t    k M          tonne               1000000 g
"""
# Columns: words and symbols without prefixes, scale and base units.
_OTHERS = """
min minute minutes mins                      60 s
h hr hrs hour hours                          3600 s
sec secs                                     1 s
day days                                     86400 s
week weeks wk wks                            604800 s
month months                                 1 month
yr yrs year years                            12 month
decade decades                               120 month
century centuries                            1200 month
ha hectare hectares                          10000 m^2
acre acres                                   4046.8564224 m^2
in inch inches                               0.0254 m
ft foot feet                                 0.3048 m
yd yds yard yards                            0.9144 m
mi mile miles                                1609.344 m
mph                                          0.44704 m s^-1
kph kmh                                      5/18 m s^-1
knot knots                                   463/900 m s^-1
oz ounce ounces                              28.349523125 g
lb lbs pound pounds                          453.59237 g
ton tons                                     1 ton
gal gallon gallons                           0.003785411784 m^3
qt quart quarts                              0.000946352946 m^3
pt pint pints                                0.000473176473 m^3
cup cups                                     0.0002365882365 m^3
tbsp tablespoon tablespoons                  0.00001478676478125 m^3
tsp teaspoon teaspoons                       0.00000492892159375 m^3
cc                                           1/1000000 m^3
gm gms                                       1 g
kgs                                          1000 g
kilo kilos                                   1000 g
deg degree degrees                           1 degree
arcminute arcminutes                         1/60 degree
revolution revolutions rev revs              1 revolution
rpm                                          1/60 revolution s^-1
unit units                                   1 unit
dollar dollars usd USD buck bucks            1 dollar
cent cents                                   1/100 dollar
euro euros EUR                               1 euro
yen                                          1 yen
yuan rmb RMB                                 1 yuan
rupee rupees                                 1 rupee
peso pesos                                   1 peso
Calorie Calories                             1000 cal
atm atmosphere atmospheres                   1 atm
psi                                          1 psi
hp horsepower                                1 hp
lightyear lightyears light-year light-years  1 ly
amu                                          1 amu
decibel decibels dB                          1 dB
"""
# Units of two words.
_PAIRS = {
    "fluid ounce": "0.0000295735295625 m^3",
    "fl oz": "0.0000295735295625 m^3",
    "nautical mile": "1852 m",
    "metric ton": "1000000 g",
    "light year": "1 ly",
}
# Symbols also accepted in other case, such as 5 CM. Single letters are excluded, and pairs with another meaning (MM).
_ANY_CASE_WORDS = "cm km kg ml mg kwh hz khz mhz lb lbs oz ft yd hr hrs in"
_ANY_CASE = frozenset(_ANY_CASE_WORDS.split())
_MIN_NAME = 3  # minimum letters of a name that may be in any case
# Symbols that are a factor, a name or a thousand unless a space precedes them.
NEEDS_SPACE = frozenset(["K", "T", "H", "C", "F", "A", "t"])
_WITH_PREFIX_ALONE = frozenset("B")  # 5 B may be billions
# Units allowed directly after a number in plain text, in addition to names of three or more letters. 2mg may be a
# product.
_PLAIN_GLUED_WORDS = "cm mm km kg ft lb lbs oz mi yd mph kph hr hrs min mins sec secs kWh"
PLAIN_GLUED = frozenset(_PLAIN_GLUED_WORDS.split())
_PLAIN_SPACED_WORDS = """
m g s h L N J W V in mL ml dL mg kN kJ kW MW MJ GW kV mV mA kPa Pa MPa Hz kHz MHz GHz eV keV MeV GeV Wh cc ha pt qt
gal kcal cal mol rad deg rpm psi atm usd USD dB yr yrs wk wks kB MB GB TB tbsp tsp hp kgs gm amu
"""
PLAIN_SPACED = frozenset(_PLAIN_SPACED_WORDS.split())

# Chinese units and counters with their English equivalents. Those that change a number are left out: 万, 倍, 成, 次方.
_CHINESE = """
米 m  千米 km  公里 km  厘米 cm  分米 dm  毫米 mm  平方米 m^2  平方厘米 cm^2  平方分米 dm^2  平方千米 km^2
平方公里 km^2  立方米 m^3  立方厘米 cm^3  立方分米 dm^3  公顷 ha  克 g  千克 kg  公斤 kg  吨 t  升 L  毫升 mL
元 yuan  秒 s  秒钟 s  分钟 min  小时 h  天 days  日 days  周 weeks  个月 months  年 years  岁 years
个 items  只 items  人 people  名 people  位 people  种 ways  条 items  张 items  件 items  本 items  辆 items  头 items
棵 items  颗 items  道 items  支 items  块 items  朵 items  盒 items  箱 items  瓶 items  页 items
"""
CHINESE = dict(pair.split() for pair in re.split(r"\s{2,}|\n", _CHINESE.strip()))


def measure(word: str) -> Measure | None:
    """Return the measure of a word or symbol, or None if it is not a unit."""
    if (found := _MEASURES.get(word)) is not None:
        return found
    lowered = word.lower()
    return _MEASURES.get(lowered) if len(word) >= _MIN_NAME or lowered in _ANY_CASE else None


def measure_of_two(first: str, second: str) -> Measure | None:
    return _PAIR_MEASURES.get(f"{first} {second}".lower())


def _read(text: str) -> Measure:
    scale, *factors = text.split()
    named = [factor.partition("^") for factor in factors]
    return Measure(tuple(sorted((name, int(power or 1)) for name, _, power in named)), Fraction(scale))


def _si_measures() -> dict[str, Measure]:
    found = {}
    for line in _SI.strip().splitlines():
        symbol, prefixes, names, size = re.split(r"\s{2,}", line)
        dimensions, scale = _read(size)
        for prefix in prefixes.split():
            found[prefix + symbol] = Measure(dimensions, scale * _PREFIXES[prefix][1])
        if symbol not in _WITH_PREFIX_ALONE:
            found[symbol] = Measure(dimensions, scale)
        for name in names.split() if names != "-" else ():
            for long, factor in (("", Fraction(1)), *_PREFIXES.values()):
                found[f"{long}{name}"] = found[f"{long}{name}s"] = Measure(dimensions, scale * factor)
    return found


def _other_measures() -> dict[str, Measure]:
    lines = (re.split(r"\s{2,}", line, maxsplit=1) for line in _OTHERS.strip().splitlines())
    return {word: _read(size) for words, size in lines for word in words.split()}


_MEASURES = _si_measures() | _other_measures()
_PAIR_MEASURES = {words + plural: _read(size) for words, size in _PAIRS.items() for plural in ("", "s")}
