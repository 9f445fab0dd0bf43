"""The Debian package: installed, used, upgraded while a node runs, removed and purged."""

import subprocess

import story
from old_home import OldHome
from root import expect

HOME = "/var/lib/levada"
UNIT = "/usr/lib/systemd/system/levada.service"


def test(root, package):
    logs = root.folder.parent
    before = root.files()
    install(root, package)
    check_files(root)
    story.play(root, logs)
    old = OldHome(root, logs, "levada", HOME)
    upgrade_while_it_runs(root, package, old)
    remove_and_purge(root, before)
    purge_without_data(root, package)
    print("the .deb: installed, used, upgraded, removed, purged")


def install(root, package):
    root.copy(package, f"/tmp/{package.name}")
    root.run("apt-get", "install", "-y", f"/tmp/{package.name}", DEBIAN_FRONTEND="noninteractive")


def remove(root, verb):
    root.run("apt-get", verb, "-y", "levada", DEBIAN_FRONTEND="noninteractive")


def check_files(root):
    version = root.run("levada", "--version")
    expect(version.startswith("levada "), f"levada --version printed {version}")
    for file in [
        UNIT,
        "/usr/share/man/man1/levada-run.1.gz",
        "/usr/share/bash-completion/completions/levada",
        "/usr/share/zsh/vendor-completions/_levada",
        "/usr/share/fish/vendor_completions.d/levada.fish",
        "/usr/share/doc/levada/THIRD-PARTY-LICENSES",
        "/usr/share/doc/levada/grafana-dashboard.json",
        "/usr/share/doc/levada/alerts.yml",
        "/usr/share/doc/levada/copyright",
    ]:
        expect(root.path(file).is_file(), f"{file} is missing")
    expect("ExecStart=/usr/bin/levada up" in root.path(UNIT).read_text(), "the unit's program")
    mode = root.run("stat", "--format=%U %a", HOME).strip()
    expect(mode == "levada 700", f"{HOME} is {mode}")
    refused = root.run("levada", "service", "install", "--system", code=120)
    expect("the package has installed" in refused, f"service install printed {refused}")


def fast(root, user):
    """Runs a program with fast sockets, which the monitor of this user carries."""
    ran = root.run("levada", "fast", "--", "uname", "-s", user=user)
    expect(ran == "Linux\n", f"levada fast printed {ran}")


def upgrade_while_it_runs(root, package, old):
    fast(root, "well")
    old.start()
    identity = old.check()
    install(root, with_higher_version(root, package))
    versions = root.run("dpkg-query", "--show", "--showformat=${Version}", "levada")
    expect(versions.endswith("+upgrade"), f"the version is {versions}")
    expect(old.node.poll() is None, "the upgrade has ended the node")
    expect(old.check() == identity, "the upgrade has changed the identity")
    old.stop()
    old.start()
    expect(old.check() == identity, "the new program has another identity")
    old.stop()
    old.check_migrated()


def with_higher_version(root, package):
    """Makes a package with the same files and a higher version."""
    folder = root.folder.parent / "upgrade"
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    control = folder / "DEBIAN/control"
    lines = control.read_text().splitlines()
    lines = [line + "+upgrade" if line.startswith("Version:") else line for line in lines]
    control.write_text("\n".join(lines) + "\n")
    made = root.folder.parent / "levada-upgrade.deb"
    build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", folder, made]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    return made


def remove_and_purge(root, before):
    data = sorted(path.name for path in root.path(HOME).iterdir())
    remove(root, "remove")
    root.run("sh", "-c", "! command -v levada")
    remove(root, "purge")
    left = root.files() - before
    of_users = ("home/", "srv/story", HOME.lstrip("/"))
    other = sorted(path for path in left if not path.startswith(of_users))
    expect(not other, f"a purge leaves {other}")
    kept = sorted(path.name for path in root.path(HOME).iterdir())
    expect(kept == data and "identity.key" in kept, f"a purge keeps of {data} only {kept}")
    expect(root.has_user("levada"), "a purge removes the owner of the data")


def purge_without_data(root, package):
    root.run("rm", "-r", HOME)
    install(root, package)
    remove(root, "purge")
    expect(not root.path(HOME).exists(), f"a purge leaves {HOME}")
    expect(not root.has_user("levada"), "a purge leaves the user levada")
