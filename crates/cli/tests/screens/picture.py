"""Shows a picture in a window at a place of the screen: picture.py FILE X Y."""

import sys

import gi

gi.require_version("Gtk", "3.0")
from gi.repository import Gtk

path, x, y = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
window = Gtk.Window(title=path)
window.add(Gtk.Image.new_from_file(path))
window.move(x, y)
window.show_all()
Gtk.main()
