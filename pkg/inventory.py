#!/usr/bin/env python3
"""Writes what the packages contain from other projects, from cargo's own lists.

  inventory.py FOLDER     writes FOLDER/levada.cdx.json, an SBOM in CycloneDX 1.5,
                          and FOLDER/THIRD-PARTY-LICENSES

Both have the packages that are linked into the binary and into the library of `levada fast`.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
PRODUCTS = ["levada-cli", "levada-preload"]
LICENSE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def cargo(*words):
    done = subprocess.run(["cargo", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"inventory.py: cargo {words[0]} failed: {done.stderr}")
    return done.stdout


def linked():
    """Returns name and version of each package that is linked into a product."""
    words = ["tree", "--locked", "--target", TARGET, "--edges", "normal,no-proc-macro"]
    words += ["--prefix", "none", "--no-dedupe", "--format", "{p}"]
    for product in PRODUCTS:
        words += ["--package", product]
    lines = cargo(*words).splitlines()
    return {tuple(line.split()[:2]) for line in lines if line.strip()}


def packages():
    """Returns the linked packages as cargo describes them, and the edges between them."""
    words = ["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]
    metadata = json.loads(cargo(*words))
    wanted = linked()
    found = [p for p in metadata["packages"] if (p["name"], "v" + p["version"]) in wanted]
    found.sort(key=lambda package: (package["name"], package["version"]))
    if len(found) != len(wanted):
        sys.exit(f"inventory.py: cargo tree lists {len(wanted)} packages, metadata {len(found)}")
    identifiers = {package["id"] for package in found}
    edges = {}
    for node in metadata["resolve"]["nodes"]:
        if node["id"] in identifiers:
            normal = [d for d in node["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
            edges[node["id"]] = sorted({d["pkg"] for d in normal} & identifiers)
    return found, edges


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def expression(package):
    """Returns the licence of a package as an SPDX expression. Old ones have a slash for OR."""
    if not package["license"]:
        sys.exit(f"inventory.py: {package['name']} {package['version']} names no licence")
    return package["license"].replace("/", " OR ")


def component(package, checksum):
    made = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "licenses": [{"expression": expression(package)}],
        "purl": reference(package),
    }
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"] and package["source"]:
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def standard_library():
    """Returns the component for Rust's standard library, which is linked, too."""
    version = re.search(r"^release: (\S+)", rustc("-vV"), re.MULTILINE).group(1)
    return {
        "type": "library",
        "bom-ref": f"rust-std@{version}",
        "name": "std",
        "version": version,
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
        "externalReferences": [{"type": "vcs", "url": "https://github.com/rust-lang/rust"}],
    }


def rustc(*words):
    return subprocess.run(["rustc", *words], check=True, capture_output=True, text=True).stdout


def bill_of_materials(found, edges, epoch):
    checks = checksums()
    by_id = {package["id"]: reference(package) for package in found}
    standard = standard_library()
    version = next(p["version"] for p in found if p["name"] == "levada-cli")
    product = {"type": "application", "bom-ref": "levada", "name": "levada", "version": version}
    product["licenses"] = [{"expression": "MIT OR Apache-2.0"}]
    components = [component(p, checks[p["name"], p["version"]]) for p in found] + [standard]
    roots = [reference(p) for p in found if p["name"] in PRODUCTS]
    depends = [{"ref": "levada", "dependsOn": [*roots, standard["bom-ref"]]}]
    for package in found:
        below = [by_id[one] for one in edges[package["id"]]]
        depends.append({"ref": by_id[package["id"]], "dependsOn": below})
    digest = hashlib.sha256(json.dumps(components).encode()).hexdigest()
    time = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, digest).urn,
        "version": 1,
        "metadata": {"timestamp": time, "component": product},
        "components": components,
        "dependencies": depends,
    }


def license_files(package):
    """Returns the licence files of a package, also those of the C sources in it."""
    folder = Path(package["manifest_path"]).parent
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in paths if is_license(path.relative_to(folder))]


def is_license(path):
    if path.suffix in (".rs", ".c", ".h", ".go", ".py", ".pl", ".html", ".json"):
        return False
    return bool(LICENSE_FILE.match(path.name)) or path.parts[0].lower() == "licenses"


def license_texts(found):
    """Returns each text with the packages that have it, and the packages without a text."""
    texts, without = {}, []
    for package in found:
        files = license_files(package)
        for path in files:
            text = path.read_text(errors="replace").strip()
            texts.setdefault(text, set()).add(f"{package['name']} {package['version']}")
        if not files:
            without.append(package)
    return texts, without


def licenses(found):
    others = [package for package in found if package["source"]]
    texts, without = license_texts(others)
    parts = ["Levada contains these packages of other projects, and Rust's standard library.\n"]
    for package in others:
        parts.append(f"{package['name']} {package['version']}: {expression(package)}")
    parts.append("\nThese have no text of their licence in their package:\n")
    for package in without:
        authors = ", ".join(package["authors"]) or package["repository"]
        parts.append(f"{package['name']} {package['version']}, by {authors}")
    for name in ["LICENSE-APACHE", "LICENSE-MIT"]:
        texts.setdefault((ROOT / name).read_text().strip(), set()).add(
            "Levada, Rust's standard library, and packages without a text"
        )
    for text, names in sorted(texts.items(), key=lambda item: (sorted(item[1]), item[0])):
        parts.append("\n" + "=" * 78 + "\n" + "\n".join(sorted(names)) + "\n\n" + text)
    return "\n".join(parts) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    found, edges = packages()
    bill = bill_of_materials(found, edges, int(os.environ["SOURCE_DATE_EPOCH"]))
    (folder / "levada.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    (folder / "THIRD-PARTY-LICENSES").write_text(licenses(found))


main()
