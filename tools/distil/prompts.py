"""Prompts for the teacher: every combination of a topic and a form is one, in a seeded order.

The demo answers ordinary chat questions, so most forms are questions; the rest are small writing
tasks, lists, plain text to continue, and a few turns of small talk before the question.
"""

from __future__ import annotations

import random
from zlib import crc32

from text import SYSTEM, chat

THINGS = """
the sky|rainbows|thunder|volcanoes|earthquakes|tides|clouds|snow|glaciers|deserts|rainforests|coral reefs
the Moon|the Sun|Mars|Jupiter|comets|black holes|stars|galaxies|gravity|light|sound|magnets|electricity
batteries|engines|bicycles|aeroplanes|helicopters|ships|submarines|trains|bridges|tunnels|clocks|mirrors
glasses|cameras|telescopes|microscopes|refrigerators|microwave ovens|light bulbs|lasers|solar panels
wind turbines|nuclear power|steel|glass|concrete|plastic|paper|rubber|gold|salt|water|ice|fire|soap
photosynthesis|evolution|DNA|cells|viruses|bacteria|vaccines|antibiotics|the heart|the brain|the lungs
the immune system|muscles|bones|sleep|dreams|memory|emotions|hunger|pain|allergies|fever|the common cold
vitamins|protein|sugar|coffee|tea|chocolate|bread|cheese|honey|rice|pasta|soup|salad|apples|tomatoes
potatoes|spices|olive oil|cooking|baking|fermentation|gardening|compost|bees|butterflies|ants|spiders
birds|eagles|penguins|owls|dogs|cats|horses|cows|elephants|lions|bears|wolves|whales|dolphins|sharks
octopuses|frogs|snakes|turtles|dinosaurs|fossils|trees|flowers|mushrooms|grass|forests|rivers|lakes
oceans|mountains|islands|caves|maps|compasses|weather|seasons|climate change|recycling|pollution
numbers|prime numbers|zero|fractions|algebra|geometry|triangles|circles|probability|statistics|averages
calculus|logic|puzzles|chess|card games|computers|the internet|email|web browsers|search engines
programming|Python|algorithms|recursion|sorting|databases|encryption|passwords|operating systems
artificial intelligence|machine learning|neural networks|robots|video games|smartphones|printers|Wi-Fi
money|banks|inflation|taxes|budgets|savings|interest rates|the stock market|insurance|trade|jobs
job interviews|meetings|leadership|teamwork|time management|procrastination|goals|habits|motivation
stress|meditation|yoga|running|swimming|walking|football|basketball|tennis|the Olympic Games|hiking
camping|fishing|travel|airports|hotels|museums|libraries|books|novels|poetry|fairy tales|myths|theatre
films|music|pianos|guitars|violins|drums|singing|dancing|painting|sculpture|photography|architecture
castles|pyramids|ancient Egypt|ancient Greece|the Roman Empire|the Middle Ages|the Renaissance
the Industrial Revolution|the printing press|the Silk Road|the French Revolution|the American Civil War
World War I|World War II|the Cold War|democracy|monarchy|elections|laws|courts|human rights|the police
schools|universities|homework|exams|teachers|languages|English grammar|spelling|writing|handwriting
public speaking|friendship|family|children|grandparents|birthdays|weddings|holidays|gifts|pets|kindness
honesty|courage|patience|happiness|love|anger|fear|curiosity|creativity|humour|wisdom|trust|respect
houses|kitchens|furniture|windows|roofs|paint|tools|cleaning|laundry|clothes|shoes|fashion|jewellery
cities|villages|farms|markets|restaurants|hospitals|doctors|nurses|dentists|firefighters|pilots|sailors
Paris|London|New York|Tokyo|Rome|Berlin|India|China|Brazil|Australia|Canada|Egypt|Japan|Africa|Antarctica
Albert Einstein|Isaac Newton|Marie Curie|Charles Darwin|Leonardo da Vinci|William Shakespeare|Mozart
Galileo|Aristotle|Cleopatra|Julius Caesar|Abraham Lincoln|Mahatma Gandhi|Nelson Mandela|Ada Lovelace
"""

QUESTIONS = """
What are {0}?|Tell me about {0}.|Explain {0} in simple terms.|Explain {0} to a child.
Explain to a beginner how to think about {0}.|Why do {0} matter?|Give me three facts about {0}.
What should everyone know about {0}?|What is interesting about {0}?|Describe {0} in one paragraph.
What is the history of {0}?|How have {0} changed over time?|What are common myths about {0}?
What is a common mistake people make about {0}?|How would you teach a lesson on {0}?
Give me some tips about {0}.|What are the main ideas behind {0}?|Why are people interested in {0}?
List five words related to {0} and say what they mean.|What are the advantages and disadvantages of {0}?
Write a short summary about {0}.|What questions could I ask an expert about {0}?
I know nothing about {0}. Where should I start?|Can you explain why {0} are important?
Give an example that shows how {0} affect daily life.|How do scientists study {0}?
What would the world be like without {0}?|What is the most surprising thing about {0}?
Explain step by step how one learns about {0}.|Compare {0} and {1}.|What is the difference between {0} and {1}?
How are {0} and {1} connected?|Which is more important, {0} or {1}, and why?
Write two sentences about {0} and two about {1}.|I like {0} and {1}. What else might I like?
"""

TASKS = """
Write a short story about {0}.|Write a short poem about {0}.|Write a story about {0} and {1}.
Write an email to a friend about {0}.|Write a speech about {0}.|Write a dialogue about {0}.
Write a headline and an opening paragraph about {0}.|Write an introduction to an essay about {0}.
Write a list of ten things to remember about {0}.|Write a quiz about {0} with three questions and answers.
Make a plan for a weekend about {0}.|Invent a slogan for a campaign about {0}.|Write a riddle about {0}.
Write a letter to a teacher about {0}.|Write instructions that a visitor needs to enjoy {0}.
Write a Python function that prints a line about {0}.|Describe a picture of {0}.
Write a product description of a book about {0}.|Pretend to be a guide and talk about {0}.
Correct this sentence: "{0} is very more interesting than {1}."|Give a title for a talk on {0}.
"""

CONTINUED = r"""
The history of {0} begins|Most people think that {0}|In this article we look at {0} and|When it comes to {0},
# An introduction to {0}\n\n|There are several reasons why {0}|A short guide to {0}:\n\n1.
Once upon a time, in a land known for {0},|Q: What are {0}?\nA:|The relation between {0} and {1} is
"""

OPENINGS = [
    ["Hello!", "Hello! How can I help you today?"],
    ["Hi, can I ask you something?", "Of course! What would you like to know?"],
    ["What is the capital of France?", "The capital of France is Paris."],
    ["Good morning.", "Good morning! What can I do for you?"],
    ["What is 2 + 2?", "2 + 2 equals 4."],
    ["Thank you for your help.", "You're welcome! Is there anything else I can help you with?"],
]

SYSTEMS = [
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "You are a patient teacher who explains things clearly.",
    "Answer in plain English.",
]


def split(block: str) -> list[str]:
    """The items of a block, which are parted by bars and line ends."""
    items = [item.strip() for line in block.strip().splitlines() for item in line.split("|")]
    return [item.replace("\\n", "\n") for item in items]


def draw(rng: random.Random) -> str:
    """One prompt: 60 % questions, 22 % tasks, 10 % after small talk, 8 % plain text."""
    topic, other = rng.sample(split(THINGS), 2)
    kind = rng.random()
    if kind < 0.08:
        return fill(rng.choice(split(CONTINUED)), topic, other)
    ask = fill(rng.choice(split(TASKS if kind < 0.30 else QUESTIONS)), topic, other)
    turns = [*rng.choice(OPENINGS), ask] if kind > 0.90 else [ask]
    return chat(turns, rng.choice(SYSTEMS) if rng.random() < 0.2 else SYSTEM)


def fill(form: str, topic: str, other: str) -> str:
    """The form with its topics, as a sentence begins."""
    text = form.format(topic, other)
    return text[0].upper() + text[1:]


def prompts(seed: int, count: int, held_out: bool) -> list[str]:
    """`count` distinct prompts; one in 20, by its checksum, is held out of training whatever the seed."""
    rng = random.Random(seed)
    seen: dict[str, None] = {}
    while len(seen) < count:
        prompt = draw(rng)
        if (crc32(prompt.encode()) % 20 == 0) == held_out:
            seen[prompt] = None
    return list(seen)
