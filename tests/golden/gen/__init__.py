"""What make.py makes the golden files with: a module a group."""
