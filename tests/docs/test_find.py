# SPDX-License-Identifier: Apache-2.0
"""What people look for is found: by the search of the built pages, by task and by symptom."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import HAND_WRITTEN

pytestmark = pytest.mark.xdist_group("search")  # the index is made once
DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["find.md", "symptoms.md", *(f"howto/{page.name}" for page in sorted((DOCS / "howto").glob("*.md")))]
SEARCHED = {
    "callback": "find",
    "confusion matrix": "find",
    "overfit": "symptoms",
    "early stopping": "howto/early-stopping",
    "sweep": "howto/sweeps",
    "resume best": "howto/best-checkpoint",
    "custom metric": "howto/custom-metric",
    "GradScaler": "find",
    "learning rate finder": "howto/learning-rate-finder",
    "test time augmentation": "howto/test-time-augmentation",
    "progress bar": "find",
    "hyper parameters": "howto/hyper-parameters",
    "config": "howto/hyper-parameters",
    "profiler": "howto/profile",
    "predict": "howto/predict",
    "inference": "howto/predict",
    "limit batches": "howto/quick-try",
    "fast_dev_run": "howto/quick-try",
    "log value": "howto/log-a-value",
    "mode collapse": "howto/gan-samples",
    "Keras": "find",
    "AutoModel": "howto/hugging-face",
    "transformers logits": "howto/hugging-face",
    "LoRA": "howto/fine-tuning",
    "peft": "howto/fine-tuning",
    "gradual unfreezing": "howto/fine-tuning",
    "layer wise learning rate": "howto/fine-tuning",
    "discriminative learning rates": "howto/fine-tuning",
    "distillation": "howto/distillation",
    "teacher student": "howto/distillation",
    "torch compile": "howto/compile",
    "several validation sets": "howto/several-data-sets",
    "ConcatDataset": "howto/several-data-sets",
    "bitsandbytes": "find",
    "bit optimizer": "find",
    "MixUp": "howto/mixup",
    "CutMix": "howto/mixup",
    "activation checkpointing": "howto/activation-checkpointing",
    "gradient checkpointing": "howto/activation-checkpointing",
    "disk full": "find",
    "reinforcement learning": "howto/reinforcement-learning",
    "PPO": "howto/reinforcement-learning",
    "replay buffer": "howto/reinforcement-learning",
    "gymnasium": "howto/reinforcement-learning",
    "diffusion": "howto/diffusion",
    "noise schedule": "find",
    "command line argument": "find",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """The search index that Sphinx makes of the pages that lead to the others."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("out")
    for name in PAGES:
        text = (DOCS / name).read_text("utf-8")
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(
            re.sub(r"\]\([^)]*\)", "]", text), "utf-8"
        )  # where links lead is not searched
    (source / "index.md").write_text("# Index\n\n```{toctree}\nfind\nsymptoms\nhowto/index\n```\n", "utf-8")
    options = ["-q", "-b", "html", "-C", "-D", "extensions=myst_parser", "-D", "html_theme=basic"]
    subprocess.run([sys.executable, "-m", "sphinx", *options, source, out], check=True, timeout=120)
    text = (out / "searchindex.js").read_text("utf-8")
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


def found(index, query):
    """The pages that have all words of a query, as the search in the browser finds them."""
    from sphinx.search.en import SearchEnglish

    stem = SearchEnglish({}).stem
    hits = []
    for word in query.lower().split():
        where = [index[part].get(stem(word), []) for part in ("terms", "titleterms")]
        numbers = {number for each in where for number in (each if isinstance(each, list) else [each])}
        hits.append({index["docnames"][number] for number in numbers})
    return set.intersection(*hits)


@pytest.mark.parametrize("query", SEARCHED)
def test_the_search_finds_it(index, query):
    assert SEARCHED[query] in found(index, query)


def test_each_symptom_has_its_heading():
    headings = re.findall(r"^## (.+)$", (DOCS / "symptoms.md").read_text("utf-8"), re.MULTILINE)
    wanted = ["NaN", "does not fall", "too good", "differs from run to run", "Memory grows", "GPU idles"]
    assert [word for word in wanted if not any(word in each for each in headings)] == []


def test_each_row_leads_to_one_page():
    rows = [
        line
        for name in ("find.md", "symptoms.md")
        for line in (DOCS / name).read_text("utf-8").splitlines()
        if line.startswith("| ") and not line.startswith(("| I want", "| usual"))
    ]
    last = [row.strip("| ").rpartition(" | ")[2] for row in rows]
    assert [cell for cell in last if not re.fullmatch(r"\[[^\]]+\]\([\w/.-]+\.md(#[\w-]+)?\)", cell)] == []
    named = [re.match(r"\[[^\]]+\]\(([\w/.-]+\.md)", cell)[1] for cell in last]
    assert [name for name in named if not (DOCS / name).exists()] == []


def test_each_page_is_one_click_from_where_people_look():
    """By task, by symptom, or in the list of contents; the index shows each law below the page of the laws."""
    looked_at = {name: (DOCS / name).read_text("utf-8") for name in ("find.md", "symptoms.md", "index.md")}
    led_to = {page for text in looked_at.values() for page in re.findall(r"\]\(([\w/-]+)\.md", text)}
    listed = set(re.findall(r"^([\w/-]+)$", looked_at["index.md"], re.MULTILINE))
    listed |= {
        f"laws/{name}"
        for name in re.findall(r"^([\w-]+)$", (DOCS / "laws/index.md").read_text("utf-8"), re.M)
    }
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in HAND_WRITTEN}
    found_by_task = {page for page in pages if page.startswith(("howto/", "cookbook/"))}
    assert sorted(pages - led_to - listed - {"index", "log", "design"}) == []
    assert sorted(found_by_task - led_to - {"howto/index", "cookbook/index"}) == []
