"""xapian_index.py DIR LINES: lines of a text as documents, and ranked queries of two words."""

import random
import sys
from itertools import islice
from pathlib import Path

import xapian

folder, count = Path(sys.argv[1]), int(sys.argv[2])
database = xapian.WritableDatabase(str(folder / "index"), xapian.DB_CREATE_OR_OVERWRITE)
generator = xapian.TermGenerator()
generator.set_stemmer(xapian.Stem("en"))
words: list[str] = []
with (folder / "text").open() as file:
    for line in islice(file, count):
        document = xapian.Document()
        document.set_data(line)
        generator.set_document(document)
        generator.index_text(line)
        database.add_document(document)
        words.append(line.split()[-1])
database.commit()
rng = random.Random(12)
enquire, answers = xapian.Enquire(database), 0
for _ in range(count // 20):
    pair = xapian.Query(xapian.Query.OP_OR, rng.sample(words, 2))
    enquire.set_query(pair)
    answers += enquire.get_mset(0, 10).size()
print(f"indexed {database.get_doccount()} lines, {answers} answers")
