#!/usr/bin/env python3
"""Finds the head sets of the shipped models and writes heads/RESULTS.md: how well they rank, beside everything else.

  heads/results.py HOTPOT.json [--models A,B] [--work FOLDER] [--permutations N] [--qrae PROGRAM]

HOTPOT.json is HotpotQA in its distractor form. Its first half chooses heads, its second half measures them; the sets that
ship are then found in the same way on both halves. What was observed is kept in the work folder, so that only new
questions are run again. Some eight minutes for half a billion parameters and 60 questions on two quiet cores, half of it
for the orders of --permutations.
"""
import argparse, datetime, json, pathlib, shutil, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
MODELS = "smollm2-135m-instruct,qwen2.5-coder-0.5b-instruct,qwen2.5-coder-1.5b-instruct"
# see TRIED.md
METHOD = {"statistic": "scaled_sum", "control": "null_query", "read": "query_mean"}


def run(*command):
    print("+", *command, file=sys.stderr)
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)


def halves(data, work):
    questions = json.loads(pathlib.Path(data).read_text())
    middle = len(questions) // 2
    files = []
    for name, part in (("first-half", questions[:middle]), ("second-half", questions[middle:])):
        file = work / f"hotpotqa-{name}.json"
        file.write_text(json.dumps(part, ensure_ascii=False))
        files.append(file)
    return files, len(questions)


def localize(a, data, model, out):
    flags = [f"--{key}={value}" for key, value in METHOD.items()]
    run(*a.qrae, "localize", data, "--model", model, "--criterion", "auroc", *flags, "--out", out)
    return json.loads((out / "run.json").read_text())


def percent(interval):
    return f"{100 * interval['mean']:.1f} ({100 * interval['low']:.1f} to {100 * interval['high']:.1f})"


def section(a, model, choose, measure):
    """Heads of one model and their table, and the set that ships; gives the section of the page."""
    half, judged, whole = (a.work / model / name for name in ("half", "eval", "all"))
    chosen = localize(a, choose, model, half)
    run(*a.qrae, "eval", measure, "--model", model, "--calibration", half, "--head-set", half / "heads.toml",
        "--permutations", a.permutations, "--out", judged)
    (whole / "inputs").mkdir(parents=True, exist_ok=True)
    for folder in (half, judged):  # the same questions, so nothing has to be observed again
        for file in (folder / "inputs").glob("*.safetensors"):
            shutil.copy(file, whole / "inputs" / file.name)
    shutil.copy(half / "study.toml", whole / "study.toml")
    shipped = localize(a, a.data, model, whole)
    shutil.copy(whole / "heads.toml", HERE / f"{model}.toml")
    records = HERE / "records"
    records.mkdir(exist_ok=True)
    for name, to in (("run.json", "json"), ("heatmap.svg", "heatmap.svg"), ("stability.svg", "stability.svg")):
        shutil.copy(whole / name, records / f"{model}.{to}")
    shutil.copy(judged / "lengths.svg", records / f"{model}.lengths.svg")
    return f"""## {model}

**Ships**: {", ".join(shipped["heads"])}, found on all {shipped["inputs"]} questions ([record](records/{model}.json),
[heatmap](records/{model}.heatmap.svg), [stability](records/{model}.stability.svg)). AUROC on questions held out of the choice
(nested cross-validation): **{percent(shipped["held_out_auroc"])}**.

**Half chooses, half measures**: {", ".join(chosen["heads"])}, found on the first {chosen["inputs"]} questions, held out within
them {percent(chosen["held_out_auroc"])}. On the second half ([score against length](records/{model}.lengths.svg)):

{(judged / "table.md").read_text()}"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", help="HotpotQA, distractor form")
    p.add_argument("--models", default=MODELS, help="default: the shipped ones")
    p.add_argument("--work", type=pathlib.Path, default=HERE.parent / "target/heads", help="default: target/heads")
    p.add_argument("--permutations", type=int, default=4, help="orders of the chunks besides their own; default 4")
    p.add_argument("--qrae", default="cargo run --release --quiet --", help="default: the program built from here")
    a = p.parse_args()
    a.qrae = a.qrae.split()
    a.work.mkdir(parents=True, exist_ok=True)
    (choose, measure), total = halves(a.data, a.work)
    sections = [section(a, model, choose, measure) for model in a.models.split(",")]
    (HERE / "RESULTS.md").write_text(f"""# How well the head sets rank

Written by `heads/results.py`, {datetime.date.today()}. HotpotQA (Yang et al. 2018, CC BY-SA 4.0), development set, distractor
setting, level hard: {total} questions of 10 paragraphs, 2 of them relevant. In the tables the first half chose the heads and
every number is of the second half, which had no part in choosing them. The row "search" had its method chosen on the first
half too. The method of the first row was settled with all questions ([TRIED.md](TRIED.md) tells how, and what the first half
alone would have said), so only the rows "search", those with a fixed recipe, and the nested estimate are free of that. AUROC:
50 is chance. R@3, nDCG@3, MRR as in the paper: per question, then averaged; ties keep the order of retrieval. Intervals are
over questions (bootstrap; those marked "of sets" are of random sets of heads), and with 30 of them wide: differences of a few points between rows are not to be trusted, see the
paired comparison below each table.

The method of the first row is {METHOD["read"]}/{METHOD["control"]}/{METHOD["statistic"]}. Chunk i with n_i of the |C| candidate tokens:

    r(t) = max(0, mean over the query's tail of â(p, t)  −  mean over the null query's tail of â(p, t))
    S_i  = mean over heads of  Σ_(t in i) r(t) / √(n_i / |C|)

where â is attention normalised over the candidate tokens. The paper's recipe is the row that begins "paper". What else was
tried, and lost: [TRIED.md](TRIED.md).

{chr(10).join(sections)}""")
    print("written:", HERE / "RESULTS.md")


if __name__ == "__main__":
    main()
