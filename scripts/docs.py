#!/usr/bin/env python3
"""Builds the documentation as a site with search, or checks its links. `make docs` runs both.

    scripts/docs.py check    every link in README.md, CONTRIBUTING.md and docs/*.md leads to a file and a heading that exist
    scripts/docs.py build    build/site: HTML by MkDocs, the Markdown beside it, llms.txt
    scripts/docs.py blocks PAGE DIR    writes the blocks of PAGE that name a file (```toml title="dance.toml") into DIR

MkDocs and its theme go into ~/.cache/gyre once.
"""
import os, pathlib, re, shutil, subprocess, sys, venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
PINNED = ["mkdocs==1.6.1", "mkdocs-material==9.8.1"]
KEYS = ROOT / "orchestrate" / "compat" / "translate" / "keys.md"  # a reference that the program reads
LINK = re.compile(r"(?<!\!)\[([^\]]*)\]\(([^)\s]+)\)|!\[([^\]]*)\]\(([^)\s]+)\)")
# The site's sections. A page that none of them lists comes last.
SECTIONS = {
    "First steps": ["index", "quickstart", "demo", "signal", "stuck"],
    "How do I": ["training", "runs", "ui", "environments", "remote-environments", "rewards", "lora", "async", "studies",
                 "evaluation", "gradient-analysis", "reward-components", "ranks", "gpu", "scale", "serve", "gateway",
                 "tinker", "from-ragen"],
    "Reference": ["commands", "configuration", "metrics", "environments-native", "environment-options",
                  "reward-options", "losses", "estimators", "budget", "checkpoints", "families", "keys"],
    "How it works": ["agent-loop", "fsdp", "performance", "benchmarks", "CONTRIBUTING", "architecture", "architecture-backend"],
}


def pages():
    """(path, text) of every page, the README first."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), KEYS]
    return [(path, path.read_text()) for path in paths]


def anchors(text):
    """The names that headings have in links, as GitHub and MkDocs make them."""
    names = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        names.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return names


def check():
    """Prints each link that leads nowhere; their number."""
    problems = 0
    for path, text in pages():
        for match in LINK.finditer(text):
            target = match[2] or match[4]
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            found = (path.parent / file) if file else path
            line = text.count("\n", 0, match.start()) + 1
            if not found.exists():
                problem = f"there is no {file}"
            elif anchor and found.suffix == ".md" and anchor not in anchors(found.read_text()):
                problem = f"{found.name} has no heading #{anchor}"
            else:
                continue
            print(f"{path.relative_to(ROOT)}:{line}: {target}: {problem}")
            problems += 1
    return problems


def stage(folder):
    """Lays the pages out flat, with links that stay inside, and gives their names and titles."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", folder / "images")
    titles = {}
    for path, text in pages():
        name = "index" if path.name == "README.md" else path.stem

        def inside(match):
            target = match[2] or match[4]
            file = target.split("#")[0]
            if re.match(r"[a-z]+:|#", target):
                return match[0]
            resolved = os.path.relpath((path.parent / file).resolve(), ROOT)
            if resolved in ("README.md", "CONTRIBUTING.md", str(KEYS.relative_to(ROOT))):
                return match[0].replace(file, "index.md" if file.endswith("README.md") else os.path.basename(file))
            if resolved.startswith("docs" + os.sep):
                return match[0].replace(file, resolved[len("docs/"):])
            return f"`{resolved}`" if (match[1] or "").strip("`") in (resolved, file) else f"{match[1]} (`{resolved}`)"

        (folder / f"{name}.md").write_text(LINK.sub(inside, text))
        titles[name] = re.search(r"^# (.+)$", text, re.M)[1].replace("`", "")
    return titles


def build():
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gyre" / "mkdocs-1"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED], check=True)
        (home / "ready").touch()
    staged, site = ROOT / "build" / "docs", ROOT / "build" / "site"
    titles = stage(staged / "pages")
    listed = {name for section in SECTIONS.values() for name in section}
    sections = SECTIONS | {"Other": sorted(titles.keys() - listed)}
    names = [name for section in sections.values() for name in section]
    navigation = "\n".join(f"  - {section}:\n" + "\n".join(f"    - {titles[name]!r}: {name}.md" for name in group)
                           for section, group in sections.items())
    (staged / "mkdocs.yml").write_text(f"""site_name: Gyre
docs_dir: pages
site_dir: {site}
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.sections, navigation.top, search.highlight, content.code.copy]
  palette:
    - {{media: "(prefers-color-scheme: light)", scheme: default, toggle: {{icon: material/weather-night, name: dark}}}}
    - {{media: "(prefers-color-scheme: dark)", scheme: slate, toggle: {{icon: material/weather-sunny, name: light}}}}
plugins: [search]
markdown_extensions: [tables, toc: {{permalink: true}}, pymdownx.superfences]
nav:
{navigation}
""".replace("toc: {permalink: true}", "{toc: {permalink: true}}"))
    subprocess.run([home / "bin" / "mkdocs", "build", "--quiet", "--strict", "-f", staged / "mkdocs.yml"], check=True,
                   env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    entries = []
    for name in names:
        text = (staged / "pages" / f"{name}.md").read_text()
        shutil.copyfile(staged / "pages" / f"{name}.md", site / f"{name}.md")
        first = re.search(r"^(?!#|!|<|\||    |```)(\S.+?)(?:\.\s|\.$|:$|\n\n)", text, re.M | re.S)
        entries.append(f"- [{titles[name]}]({name}.md): {' '.join(first[1].split()) if first else ''}")
    (site / "llms.txt").write_text("# Gyre\n\n> Trains language-model agents with reinforcement learning and shows why the training moves.\n\n## Pages\n\n" + "\n".join(entries) + "\n")
    print(f"{site}: read it with python3 -m http.server -d {site} (browsers do not search in files)")


def blocks(page, folder):
    for name, text in re.findall(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', pathlib.Path(page).read_text(), re.M | re.S):
        (pathlib.Path(folder) / name).write_text(text)


def main(arguments):
    match arguments:
        case ["check"]:
            sys.exit(1 if check() else 0)
        case ["build"]:
            build()
        case ["blocks", page, folder]:
            blocks(page, folder)
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
