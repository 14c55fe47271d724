"""Countable nouns: nouns that may follow a number without changing it, as in 7 apples.

A noun that could change the number is left out: dozen, half, quarter, score, times, part.
"""

from __future__ import annotations

_SINGULAR = """
    acorn action activity ad adult airplane album animal antelope apartment appetizer apple arm arrangement arrow
    article artist assignment astronaut athlete attempt avocado baby bag bagel ball balloon banana band bandage barrel
    baseball basket basketball batch battery bead bean bear bed bedroom bee beetle bell belt berry bicycle bike bill bin
    bird biscuit blanket block blossom blouse blueberry board boat bolt book bookcase bottle bouquet bowl box boy
    bracelet branch brick bridge brother brownie bucket buffalo bug building bulb bull bunny burger bus bush bushel
    butterfly button cabbage cabin cake call camera camper can candle candy cap car card carnation carrot cart carton
    case cat caterpillar cell chair channel chapter character chicken child chip chocolate choice choir chore circle
    citizen claim class classmate classroom client clock cloth clown club coat cobweb coconut code coin collar color
    coloring column combination comic committee computer cone contestant cookie copy corner couch coupon course cousin
    cow crab cracker crate crayon crew crow crumb cucumber cupcake customer dancer daughter deer desk dessert detective
    diagonal diamond digit dime dinosaur diploma dish disk divisor doctor dog doll dolphin donation donkey donut door
    doughnut dove dragon drawer drawing dress drink driver drop duck duckling dumpling eagle ear earring edge egg
    eggplant element elephant email employee envelope episode equation eraser error essay event exam example exercise
    eye face factor family fan farmer feather fence fern field figure file film finger firecracker firefighter firework
    fish flag flavor flea flight floor flower folder follower forest fork fox friend frog fruit function game garden
    gift giraffe girl glass glove goal goat goldfish grandchild grape graph guest guitar gumball guppy haircut hamburger
    hammer hamster hand handshake hat helmet hen hole home horse hotdog house human hummingbird hydrant icicle
    individual ingredient insect integer intersection interval invitation island item jacket jar jelly jellybean jewel
    job journalist jump key keychain kid kitten knife knight lady ladybug lamb lamp lap lawn leaf leg lemon lesson
    letter lettuce lightbulb line lion lizard llama loaf log lollipop machine magazine magnet mailbox man mango map
    marble marker mask matchstick meal meatball medal meeting member message microphone milkshake mirror mistake model
    monkey monster mosquito mountain mouse move movie muffin mug mushroom musician nail napkin necklace neighbor nickel
    night node nomination note notebook novel number nurse nut object obstacle octopus officer onion option orange
    orchid order ornament outcome outfit owl ox oyster package packet page painter painting palindrome pamphlet pan
    pancake panda panel paper parade paragraph parent parrot participant partition partner passenger patch path patient
    pattern peach peacock pear pearl pebble pen pencil penguin penny people pepper permutation person pet petal phone
    photo photograph picture pie pig pigeon pill pillow pin pineapple pirate pizza plane planet plank plant plate
    platform player plum pod poem point polygon polynomial pony postcard poster pot potato prime prize problem program
    project pumpkin pup puppy puzzle question quilt rabbit racer radish rainbow raisin rat ray recipe record rectangle
    region relative repetition resident response restaurant ribbon ride ring river road robot rock roll room rose round
    route row rubber ruler rung sack sail salad salesman sandwich scarf school scientist scoop seal seashell seat
    section seed seedling segment sentence sequence service serving set sheep sheet shelf shell ship shirt shoe shot
    shovel shrimp shrub side sign singer sister sketch skirt sled slice slide slipper snack snail snake snowball
    snowflake soap sock soda sofa soldier solution son song sparrow spider spoon spot squirrel stair stall stamp star
    station statue step stick sticker stitch stone stool stop store story straw strawberry street string stripe stroke
    student subject subset suit suitcase survey swan sweater sweet symbol table tadpole tank task teacher team term test
    text theorem ticket tie tiger tile tire tissue toast toddler token tomato tool tooth toothbrush topping towel tower
    town toy tractor train transformation translation trapezoid treat tree triangle trip triple trout truck truffle
    trumpet tub tube tulip tuple turkey turn turtle type umbrella user value van vase vector vegetable vehicle vertex
    video violin visit visitor volunteer vote voter waffle wagon waiter walk wall walnut watch watermelon way wheel
    whistle widget window wing winner wolf woman word worker workout worm wrapper zebra
"""

# Nouns that count only in the plural.
_PLURAL = """
checks clothes cubes cylinders flips groups heads jeans lists loads losses matches multiples packs pairs pants piles
places powers prisms pyramids results rolls roots runs scissors shorts spheres squares states tails tosses wins
zeros
"""

# Substances that "of" may introduce: 5 cups of flour.
_MASS = """
bread butter cake candy cement cereal cheese chocolate clay cloth coal coffee concrete corn cream dirt fabric fat
fertilizer flour food fruit fuel gas gasoline gold grain grass gravel hay honey ice jam jelly juice lace land
lemonade liquid lumber meat medicine milk mixture mulch oil paint pasta pastry popcorn powder protein punch ribbon
rice rope salt sand seed silver soap soda soil solution soup sugar syrup tape tea thread trash vinegar water wax
wheat wine wire wood yarn
"""

_IRREGULAR = {
    "children": "child",
    "grandchildren": "grandchild",
    "dice": "die",
    "feet": "foot",
    "geese": "goose",
    "knives": "knife",
    "leaves": "leaf",
    "loaves": "loaf",
    "men": "man",
    "mice": "mouse",
    "oxen": "ox",
    "persons": "people",
    "person": "people",
    "shelves": "shelf",
    "teeth": "tooth",
    "vertices": "vertex",
    "wolves": "wolf",
    "women": "woman",
}
_ADJECTIVES_WORDS = """
different distinct possible such valid favorable ordered unique real prime integer whole positive red blue green
white black yellow purple pink brown golden small large big little tall short total
"""
ADJECTIVES = frozenset(_ADJECTIVES_WORDS.split())
UNCHANGED = frozenset(
    ["people", "fish", "sheep", "deer", "shrimp", "trout", "goldfish", *_PLURAL.split()]
)  # with one form for singular and plural
_NOUNS = frozenset(_SINGULAR.split())
_ONLY_PLURAL = frozenset(_PLURAL.split())
MASS = frozenset(_MASS.split())


def counted(word: str) -> str:
    """Return the noun in the singular, or "" for a word that is not a countable noun."""
    if word in _ONLY_PLURAL:
        return word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    candidates = [word, word.removesuffix("s"), word.removesuffix("es")]
    if word.endswith("ies"):
        candidates.append(f"{word[:-3]}y")
    return next((noun for noun in candidates if noun in _NOUNS), "")
