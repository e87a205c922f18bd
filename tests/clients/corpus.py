"""One question, and texts of which the second answers it."""

QUESTION = "In which town was the architect Mirela Tosk born?"
TEXTS = [
    "Each June the town of Halvorn celebrates the herring with music and a procession of boats.",
    "Mirela Tosk, the architect of the Halvorn lighthouse, was born in the town of Venlach.",
    "A Fresnel lens bends the light of a small lamp into a narrow beam.",
    "The ferry to Sandrey leaves at nine, at noon and at four, in summer also at seven.",
    "The harbour board of Corrim met in 1909 to discuss the price of coal.",
]
BEST = 1
