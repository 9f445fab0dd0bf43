"""The archive: installed with install.sh by root and by a user, upgraded, removed."""

import subprocess

import story
from old_home import OldHome
from root import expect

HOME = "/home/old/home"
UNIT = "/etc/systemd/system/levada.service"
UNINSTALL = "/usr/local/share/levada/uninstall.sh"


def test(root, package):
    logs = root.folder.parent
    expect(not root.path("/usr/bin/cc").exists(), "the root has a compiler")
    before = root.files()
    unpacked = unpack(root, package)
    root.run(f"{unpacked}/install.sh", "--prefix", code=2)
    root.run(f"{unpacked}/install.sh")
    story.play(root, logs)
    root.add_user("old")
    root.run("install", "-d", "-o", "old", "-g", "old", "-m", "700", HOME)
    upgrade_while_it_runs(root, unpacked, OldHome(root, logs, "old", HOME))
    unit_of_the_machine(root)
    root.run(UNINSTALL)
    expect_only_data(root, before)
    install_as_user(root, unpacked, before)
    print("the archive: installed, used, upgraded, removed, by root and by a user")


def unpack(root, package):
    subprocess.run(["tar", "-xf", package, "-C", root.path("/tmp")], check=True)
    return "/tmp/" + package.name.removesuffix(".tar.gz")


def upgrade_while_it_runs(root, unpacked, old):
    old.start()
    identity = old.check()
    # An earlier version may have had a file that this one lacks.
    dropped = "share/levada/dropped"
    root.path(f"/usr/local/{dropped}").write_text("")
    with open(root.path("/usr/local/share/levada/installed"), "a") as record:
        record.write(f"{dropped}\n")
    root.run(f"{unpacked}/install.sh")
    expect(not root.path(f"/usr/local/{dropped}").exists(), "an upgrade leaves an old file")
    expect(old.check() == identity, "the upgrade has changed the identity")
    old.stop()
    old.start()
    expect(old.check() == identity, "the new program has another identity")
    old.stop()
    old.check_migrated()


def unit_of_the_machine(root):
    printed = root.run("levada", "service", "install", "--system")
    expect("systemctl enable --now levada.service" in printed, f"it printed {printed}")
    unit = root.path(UNIT).read_text()
    expect("ExecStart=/usr/local/bin/levada up" in unit, f"the unit's program: {unit}")
    expect(root.has_user("levada"), "the user of the unit was not made")
    root.run("levada", "service", "install", "--system")
    expect(root.path(UNIT).read_text() == unit, "a second call changes the unit")
    root.run("levada", "service", "remove", "--system")
    expect(not root.path(UNIT).exists(), "the unit was not removed")
    expect(not root.has_user("levada"), "the user of the unit was not removed")


def install_as_user(root, unpacked, before):
    root.run(f"{unpacked}/install.sh", user="well")
    ran = root.run("levada", "fast", "--", "uname", "-s", user="well")
    expect(ran == "Linux\n", f"levada fast printed {ran}")
    printed = root.run("levada", "service", "install", user="well")
    expect("systemctl --user enable --now levada.service" in printed, f"it printed {printed}")
    root.run("levada", "service", "remove", user="well")
    root.run("/home/well/.local/share/levada/uninstall.sh", user="well")
    local = [str(path) for path in root.path("/home/well/.local").rglob("*") if path.is_file()]
    installed = [path for path in local if "/state/" not in path]
    expect(not installed, f"uninstall.sh leaves {installed}")
    expect_only_data(root, before)


def expect_only_data(root, before):
    left = root.files() - before
    other = sorted(path for path in left if not path.startswith(("home/", "srv/story")))
    expect(not other, f"uninstall.sh leaves {other}")
