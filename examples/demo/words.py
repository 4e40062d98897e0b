"""The vocabulary of the demo's texts: people, places, goods, days.

Used by make_text.py (what the base model reads) and make_task.py (what it is then taught)."""

NAMES = """Maria Peter Ana Omar Lucia Ivan Grace Hugo Nora Felix Amina Diego Clara Boris Yuki Samuel
Rosa Karim Elena Victor Julia Pablo Ingrid Tomas Leila Martin Sofia Anton Naomi Daniel Irene
Kofi""".split()

CITIES = {
    "Lima": "Peru", "Oslo": "Norway", "Cairo": "Egypt", "Paris": "France", "Quito": "Ecuador",
    "Delhi": "India", "Rome": "Italy", "Lagos": "Nigeria", "Tokyo": "Japan", "Madrid": "Spain",
    "Vienna": "Austria", "Accra": "Ghana", "Berlin": "Germany", "Bogota": "Colombia",
    "Dublin": "Ireland", "Hanoi": "Vietnam", "Havana": "Cuba", "Prague": "Czechia",
    "Nairobi": "Kenya", "Bergen": "Norway",
}

ITEMS = """melons apples lemons onions carrots eggs potatoes tomatoes pears plums cherries mangoes
peppers olives books pens lamps chairs cups plates spoons shirts hats coats shoes bags candles clocks
flowers kites bells tickets""".split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November
December""".split()
COLOURS = "red green blue white black yellow brown grey pink orange".split()
JOBS = """baker doctor teacher farmer painter driver writer tailor nurse carpenter singer
gardener lawyer cook sailor engineer""".split()
FOODS = "soup bread rice fish cheese salad pasta beans honey yogurt stew pancakes".split()
WEATHER = "sunny rainy windy cold warm cloudy foggy dry".split()
PLACES = "market station museum school park library harbour square bridge hotel".split()
